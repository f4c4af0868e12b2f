// Package bench measures the breaker beside sony/gobreaker and failsafe-go,
// and tries its refusals on the retriers that programs put around it. It is a
// module of its own, so that nobody who uses the kit downloads its rivals.
//
//	go test -run '^$' -bench . -benchmem
//
// prints every path for every breaker, and at the end a table of the ratios and
// one of eight processes, with breakers of their own and with a shared one.
package bench
