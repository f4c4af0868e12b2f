package testutil

// Looked is err in a wrapping that counts how often somebody looks into it, to
// test that an error is read once:
//
//	looks, err := testutil.Looked(io.ErrUnexpectedEOF)
//	classify(err)
//	once := looks()
func Looked(err error) (looks func() int, wrapped error) {
	l := &looked{error: err}
	return func() int { return l.times }, l
}

type looked struct {
	error
	times int
}

func (l *looked) Unwrap() error { l.times++; return l.error }
