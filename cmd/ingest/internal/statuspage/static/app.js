"use strict";
// Updates the page in place from the server's events. Without this script the
// browser reloads the page every few seconds.
(() => {
  const link = document.getElementById("link");
  const news = document.getElementById("news");
  const parts = ["headline", "breakers", "timeline", "problems", "progress"];
  let ahead = 0; // of this clock, the server's, in milliseconds
  let again;

  const say = (text, kind) => {
    link.hidden = false;
    link.textContent = text;
    link.className = "link " + kind;
  };

  const spell = (s) => {
    const units = [[Math.floor(s / 86400), "d"], [Math.floor(s / 3600) % 24, "h"], [Math.floor(s / 60) % 60, "min"], [s % 60, "s"]];
    const first = units.findIndex(([n]) => n > 0);
    return units.slice(first, first + 2).filter(([n]) => n > 0).map(([n, unit]) => n + " " + unit).join(" ");
  };

  const count = () => {
    for (const span of document.querySelectorAll("[data-until]")) {
      const left = Math.max(0, Math.ceil((Number(span.dataset.until) - Date.now() - ahead) / 1000));
      const text = left === 0 ? "due" : "in " + spell(left);
      if (span.textContent !== text) span.textContent = text;
    }
  };

  const inWords = ({ state, held }) => state.replace("_", "-") + (held ? ", " + held.replace("_", " ") : "");
  const title = () => document.querySelector(".headline").dataset.title;
  const states = () => new Map(Array.from(document.querySelectorAll("[data-upstream]"), (e) => [e.dataset.title, inWords(e.dataset)]));

  // Tell a screen reader what changed, not the whole page.
  const announce = (before, after, wasTitled) => {
    const changes = title() === wasTitled ? [] : [title()];
    for (const [upstream, state] of after) {
      if (before.has(upstream) && before.get(upstream) !== state) changes.push(upstream + " is " + state);
    }
    if (changes.length > 0) news.textContent = changes.join(", ");
  };

  // The server has escaped what it sends: these are parts of its own page.
  const put = (id, html) => {
    const place = document.getElementById(id);
    const focused = place.contains(document.activeElement) ? document.activeElement.id : "";
    const [before, wasTitled] = [states(), title()];
    place.innerHTML = html;
    if (focused) document.getElementById(focused)?.focus();
    announce(before, states(), wasTitled);
    document.title = title() + " · penstock";
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
