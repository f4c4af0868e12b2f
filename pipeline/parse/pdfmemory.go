package parse

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// pdfMemory is the memory of one engine: address space that is reserved at
// once, and takes real memory only where the engine has written. It never
// moves, so that growing it needs no second copy, and it is given back as soon
// as the document has been read, not when the garbage is collected.
type pdfMemory struct {
	reserved []byte
	besides  int64       // Limits.MaxMemory
	full     atomic.Bool // the engine has asked for more
}

// newPDFMemory reserves memory for a document of so many bytes, which lies in
// it, and for besides bytes of work.
func newPDFMemory(document, besides int64) (*pdfMemory, error) {
	reserved, err := reserve(min(document+min(besides, mostPDFMemory), mostPDFMemory))
	if err != nil {
		return nil, fmt.Errorf("reserving memory for the PDF engine: %w", err)
	}
	return &pdfMemory{reserved: reserved, besides: besides}, nil
}

// mostPDFMemory is what 32 bits can address.
const mostPDFMemory = 4<<30 - 64<<10

// Reallocate returns the first size bytes, or nil where there are fewer.
func (m *pdfMemory) Reallocate(size uint64) []byte {
	if m == nil || size > uint64(len(m.reserved)) {
		if m != nil {
			m.full.Store(true)
		}
		return nil
	}
	return m.reserved[:size]
}

// Free does nothing: an engine that is killed is freed while its code runs.
func (m *pdfMemory) Free() {}

// release gives the memory back. No code of the engine may run any more.
func (m *pdfMemory) release() { release(m.reserved) }

// explain says that a document needs too much memory, if the engine has asked
// for more than there is: text may be missing even where it did without.
func (m *pdfMemory) explain(err error) error {
	if !m.full.Load() {
		return err
	}
	return refuse(TooLarge, fmt.Errorf("the PDF needs more than %d bytes of memory besides its own (MaxMemory, --max-memory)",
		m.besides))
}

// pdfMemories hands each engine that is made the memory that was set for it.
// One engine is made at a time.
type pdfMemories struct{ next *pdfMemory }

func (m *pdfMemories) context() context.Context {
	return experimental.WithMemoryAllocator(context.Background(),
		experimental.MemoryAllocatorFunc(func(uint64, uint64) experimental.LinearMemory { return m.next }))
}
