package testutil

// Looked is err in a wrapping that counts how often somebody looks into it, to
// test that an error is read once:
//
//	err, looks := testutil.Looked(io.ErrUnexpectedEOF)
//	classify(err)
//	once := looks()
func Looked(err error) (wrapped error, looks func() int) { //nolint:staticcheck // it returns no failure
	l := &looked{error: err}
	return l, func() int { return l.times }
}

type looked struct {
	error
	times int
}

func (l *looked) Unwrap() error { l.times++; return l.error }
