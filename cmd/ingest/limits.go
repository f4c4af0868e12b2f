package main

import (
	"time"

	"github.com/penstock-go/penstock/pipeline/parse"
)

// LimitFlags bound what one document may cost.
type LimitFlags struct {
	MaxSize      int64         `group:"document limits" env:"PENSTOCK_MAX_SIZE" placeholder:"BYTES" min:"0" help:"Largest document to parse in memory; formats that stream may be larger. Default: 100 MB."`
	ParseTimeout time.Duration `group:"document limits" env:"PENSTOCK_PARSE_TIMEOUT" min:"0s" help:"Processor time that a parser may use without progress: a page, an entry, a row, a block or bytes read. Default: 1m."`
	MaxWork      int64         `group:"document limits" env:"PENSTOCK_MAX_WORK" placeholder:"N" min:"0" help:"Steps of parsing per byte of a document: pages, entries, rows, blocks, 32 bytes of text each, kilobytes read or unpacked. Default: 1."`
	MaxEntries   int           `group:"document limits" env:"PENSTOCK_MAX_ENTRIES" placeholder:"N" min:"0" help:"Members of an archive or office document, nested ones included. Default: 10,000."`
	MaxUnpacked  int64         `group:"document limits" env:"PENSTOCK_MAX_UNPACKED" placeholder:"BYTES" min:"0" help:"Size that an archive may unpack to, nested ones included. Default: 1 GB."`
	MaxRatio     int64         `group:"document limits" env:"PENSTOCK_MAX_RATIO" placeholder:"N" min:"0" help:"Unpacked size of a member divided by its packed size, above 1 MB. Default: 200."`
	MaxDepth     int           `group:"document limits" env:"PENSTOCK_MAX_DEPTH" placeholder:"N" min:"0" help:"How deep archives may be nested. Default: 4."`
	MaxMemory    int64         `group:"document limits" env:"PENSTOCK_MAX_MEMORY" placeholder:"BYTES" min:"0" help:"Memory to read one PDF in, besides its size; as many are read at a time as there are processors. Default: 128 MB."`
}

func (f *LimitFlags) limits() parse.Limits {
	return parse.Limits{
		MaxSize: f.MaxSize, Timeout: f.ParseTimeout, MaxWork: f.MaxWork, MaxEntries: f.MaxEntries,
		MaxUnpacked: f.MaxUnpacked, MaxRatio: f.MaxRatio, MaxDepth: f.MaxDepth, MaxMemory: f.MaxMemory,
	}
}
