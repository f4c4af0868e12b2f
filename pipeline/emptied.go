package pipeline

import (
	"fmt"
	"slices"
	"sync"
)

// reportEmpty says which inputs had nothing to ingest: a name may be wrong, or
// a volume not mounted. It logs those that the run before did not report.
func (r *run) reportEmpty() error {
	r.summary.EmptyInputs = r.emptyInputs()
	emptied, err := r.emptied()
	for _, input := range emptied {
		r.summary.Unlisted = append(r.summary.Unlisted, fmt.Sprintf(
			"nothing is left in %s, where documents were ingested from; it may not be mounted (to delete them, use 'ingest delete')",
			input))
	}
	for _, input := range r.empty.news(r.summary.EmptyInputs) {
		r.Logger.Warn("nothing to ingest was found; check that the input is the right one", "input", input)
	}
	return err
}

// emptied lists, in a stable order, the empty inputs from which the journal has
// documents.
func (r *run) emptied() (inputs []string, err error) {
	if len(r.summary.EmptyInputs) == 0 || r.Emptied == nil || r.DryRun {
		return nil, nil
	}
	for d, err := range r.Journal.Documents(r.lasting(), r.Destination, "") {
		if err != nil {
			return nil, err
		}
		input := r.Emptied(d.ID, d.Location)
		if input == "" || slices.Contains(inputs, input) {
			continue
		}
		if inputs = append(inputs, input); len(inputs) == len(r.summary.EmptyInputs) {
			break
		}
	}
	slices.Sort(inputs)
	return inputs, nil
}

// heard remembers what the last run of a pipeline reported: a service runs
// every minute.
type heard struct {
	mu   sync.Mutex
	last []string
}

// news returns what the last call did not name.
func (h *heard) news(all []string) (news []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range all {
		if !slices.Contains(h.last, one) {
			news = append(news, one)
		}
	}
	h.last = all
	return news
}
