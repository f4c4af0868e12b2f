"use strict";
// Updates the page in place from the server's events. Without this script the
// browser reloads the page every few seconds.
(() => {
  const link = document.getElementById("link");
  const news = document.getElementById("news");
  const parts = ["breakers", "progress", "problems", "transitions"];
  let ahead = 0; // of this clock, the server's, in milliseconds
  let again;

  const say = (text, kind) => {
    link.hidden = false;
    link.textContent = text;
    link.className = "link " + kind;
  };

  const count = () => {
    for (const span of document.querySelectorAll("[data-until]")) {
      const left = Math.max(0, Math.ceil((Number(span.dataset.until) - Date.now() - ahead) / 1000));
      const text = left === 0 ? "is due" : "in " + (left < 60 ? left + " s" : Math.floor(left / 60) + " min " + (left % 60) + " s");
      if (span.textContent !== text) span.textContent = text;
    }
  };

  const inWords = ({ state, held }) => state.replace("_", "-") + (held ? ", " + held.replace("_", " ") : "");
  const states = () => new Map(Array.from(document.querySelectorAll("[data-upstream]"), (e) => [e.dataset.upstream, inWords(e.dataset)]));

  // Tell a screen reader what changed, not the whole page.
  const announce = (before, after) => {
    const changes = [];
    for (const [upstream, state] of after) {
      if (before.has(upstream) && before.get(upstream) !== state) changes.push(upstream + " is " + state);
    }
    if (changes.length > 0) news.textContent = changes.join(", ");
  };

  // The server has escaped what it sends: these are parts of its own page.
  const put = (id, html) => {
    const place = document.getElementById(id);
    const focused = place.contains(document.activeElement) ? document.activeElement.id : "";
    const before = states();
    place.innerHTML = html;
    if (focused) document.getElementById(focused)?.focus();
    announce(before, states());
    count();
  };

  const connect = () => {
    const events = new EventSource("/events");
    events.addEventListener("open", () => say("live", "live"));
    events.addEventListener("clock", (event) => { ahead = Number(event.data) - Date.now(); count(); });
    for (const id of parts) events.addEventListener(id, (event) => put(id, event.data));
    events.addEventListener("error", () => {
      say("disconnected, reconnecting", "lost");
      if (events.readyState !== EventSource.CLOSED) return; // the browser tries by itself
      events.close();
      clearTimeout(again);
      again = setTimeout(connect, 5000);
    });
  };

  setInterval(count, 250);
  count();
  connect();
})();
