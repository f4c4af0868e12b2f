package embed

import "sync"

// Limits closes a batch when one of them is reached. A larger text goes alone.
// All must be positive.
type Limits struct {
	Items, Tokens, Bytes int
}

// item is a text in a batch.
type item struct {
	hash, text string
	tokens     int
}

// sizes is what is known of the batches that the server takes. It is safe for
// concurrent use.
//
// A server that refuses a batch for its size need not say so in words that a
// program knows. So a batch that is larger than any that was answered is sent
// while no other such batch is: the server refuses one, and not as many as are
// in flight.
type sizes struct {
	trying sync.Mutex // held to send a batch of a size that is not known

	mu       sync.Mutex
	limits   Limits // of a batch; they only shrink
	answered Limits // the largest by each measure that were answered
	strict   bool   // a batch that was larger than these has been refused
}

// slack is how many times the tokens and bytes of a batch that was answered
// another may have to be sent beside others: texts differ in length. After a
// refusal it is 1.
const slack = 2

func sizeOf(batch []item) Limits {
	size := Limits{Items: len(batch)}
	for _, t := range batch {
		size.Tokens += t.tokens
		size.Bytes += len(t.text)
	}
	return size
}

// within reports whether a size is in no measure above another.
func (l Limits) within(other Limits) bool {
	return l.Items <= other.Items && l.Tokens <= other.Tokens && l.Bytes <= other.Bytes
}

// next cuts a batch off texts, of which there is at least one. If its size is
// not known to be taken, next waits until no other such batch is on its way,
// and alone is true; leave ends the wait of others and may be called again.
func (s *sizes) next(texts []item) (batch []item, alone bool, leave func()) {
	if batch = s.cut(texts); s.known(batch) {
		return batch, false, func() {}
	}
	s.trying.Lock()
	leave = sync.OnceFunc(s.trying.Unlock)
	if batch = s.cut(texts); s.known(batch) {
		leave()
		return batch, false, leave
	}
	return batch, true, leave
}

// outgrown reports whether a batch would now be cut in another way.
func (s *sizes) outgrown(batch []item, alone bool) bool {
	return len(s.cut(batch)) < len(batch) || !alone && !s.known(batch)
}

// cut returns the texts that go into one batch, at least one.
func (s *sizes) cut(texts []item) []item {
	s.mu.Lock()
	limits := s.limits
	s.mu.Unlock()
	n, size := 0, Limits{}
	for _, t := range texts {
		size.Items, size.Tokens, size.Bytes = size.Items+1, size.Tokens+t.tokens, size.Bytes+len(t.text)
		if n > 0 && !size.within(limits) {
			break
		}
		n++
	}
	return texts[:n:n]
}

// known reports whether the server can be expected to take a batch of this
// size.
func (s *sizes) known(batch []item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.answered
	if !s.strict {
		taken.Tokens, taken.Bytes = slack*taken.Tokens, slack*taken.Bytes
	}
	return len(batch) == 1 || sizeOf(batch).within(taken)
}

// took remembers that a batch was answered.
func (s *sizes) took(batch []item) {
	size := sizeOf(batch)
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.answered
	a.Items, a.Tokens, a.Bytes = max(a.Items, size.Items), max(a.Tokens, size.Tokens), max(a.Bytes, size.Bytes)
}

// doubt remembers that a batch was refused, for its size or for a text.
func (s *sizes) doubt(batch []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strict = s.strict || !sizeOf(batch).within(s.answered)
}

// shrink remembers that a batch was too large, and returns the new limits: its
// larger half. The measures in which a larger one was answered are not to
// blame, unless all are so.
func (s *sizes) shrink(batch []item) Limits {
	half := len(batch) / 2
	size, first, second := sizeOf(batch), sizeOf(batch[:half]), sizeOf(batch[half:])
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.answered
	if size.within(taken) {
		taken = Limits{}
	}
	less := func(limit *int, size, half, taken int) {
		if size > taken {
			*limit = max(1, min(*limit, max(half, taken)))
		}
	}
	less(&s.limits.Items, size.Items, half, taken.Items)
	less(&s.limits.Tokens, size.Tokens, max(first.Tokens, second.Tokens), taken.Tokens)
	less(&s.limits.Bytes, size.Bytes, max(first.Bytes, second.Bytes), taken.Bytes)
	return s.limits
}
