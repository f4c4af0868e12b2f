// Package storetest tests stores of shared breakers, and programs that share
// their breakers.
//
// Run is the conformance suite of resilience.Store. A store's test is
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Opened {
//			return storetest.Opened{Stores: []resilience.Store{open(t), open(t)}}
//		})
//	}
//
// Memory is a store for tests. It keeps its records in memory, and has the
// faults that a real store shows once in a month, on request.
package storetest
