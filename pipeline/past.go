package pipeline

import "sync"

// past has the journal note what rows were made with before they are deleted:
// vectors and answers about earlier versions stay useful until their document
// is deleted, and nothing else tells then which they are.
type past struct {
	once             sync.Once
	vectors, answers bool // the journal may hold some
	err              error
}

// begin finds out, once a run, what the journal may hold.
func (p *past) begin(s *scope) error {
	p.once.Do(func() {
		p.vectors, p.answers, p.err = s.Journal.HoldsPaid(s.ctx)
		p.vectors, p.answers = p.vectors || s.KeepVectors, p.answers || s.Enrich.on()
	})
	if p.err != nil {
		return s.end.Fault(p.err)
	}
	return nil
}
