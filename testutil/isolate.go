package testutil

// Isolate runs fn in a goroutine of its own and waits until it has ended: by
// its return, by a panic, or by runtime.Goexit.
func Isolate(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		fn()
	}()
	<-done
}
