package testutil

// Isolate runs fn in a new goroutine and waits until it ends: by returning, by
// a panic, or by runtime.Goexit.
func Isolate(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		fn()
	}()
	<-done
}
