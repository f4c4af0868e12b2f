package statuspage

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	// beat is how often an idle stream says that it is alive, so that no proxy
	// ends it.
	beat = 15 * time.Second
	// sendLimit is how long a watcher may take to receive.
	sendLimit = 10 * time.Second
)

// fragments renders the parts of the page that change.
func (p *Page) fragments(ctx context.Context) []fragment {
	view := p.view(ctx)
	view.Timeline.omit(view.Headline.Cause)
	view.Live = true
	var all []fragment
	for _, id := range []string{"headline", "breakers", "timeline", "problems", "progress"} {
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, id, view); err != nil {
			p.config.Logger.Error("cannot render a part of the status page", "part", id, "error", err)
		}
		all = append(all, fragment{id: id, html: text.String()})
	}
	return all
}

// events streams the parts that change, each as an event named after the
// element that it belongs in.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	if !p.hub.join() {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many streams", http.StatusServiceUnavailable)
		return
	}
	defer p.hub.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	s := stream{to: http.NewResponseController(w), w: w}
	// The browser's clock may differ: the page counts down by this one.
	err := s.send(fmt.Sprintf("retry: 2000\nevent: clock\ndata: %d\n\n", p.now().UnixMilli()))
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for seen := 0; err == nil; {
		news, version, more, over := p.hub.since(seen)
		if over {
			return
		}
		seen = version
		if len(news) > 0 {
			err = s.send(events(news))
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-more:
		case <-ticker.C:
			err = s.send(": alive\n\n")
		}
	}
}

// events encodes fragments as server-sent events.
func events(news []fragment) string {
	var text strings.Builder
	for _, f := range news {
		text.WriteString("event: " + f.id + "\n")
		for line := range strings.Lines(f.html) {
			text.WriteString("data: " + strings.TrimRight(line, "\r\n") + "\n")
		}
		text.WriteString("\n")
	}
	return text.String()
}

// stream is one watcher's connection.
type stream struct {
	to *http.ResponseController
	w  http.ResponseWriter
}

func (s stream) send(text string) error {
	if err := s.to.SetWriteDeadline(time.Now().Add(sendLimit)); err != nil {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.to.Flush()
}
