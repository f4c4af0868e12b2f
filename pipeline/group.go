package pipeline

import "time"

const (
	groupChunks    = 512
	groupBytes     = 4 << 20
	groupDocuments = 128
	// groupWait is how long a group that has begun waits for company. It is
	// short beside one Strong read of Milvus, and long beside parsing a page.
	groupWait = 50 * time.Millisecond
)

// assemble makes groups of parts, in the order in which they come. It ends when
// parts is closed and the last group is taken.
func assemble(parts <-chan *part, groups chan<- []*part) {
	a := assembler{groups: groups}
	timer := time.NewTimer(groupWait)
	defer timer.Stop()
	for {
		select {
		case p, ok := <-parts:
			if !ok {
				a.flush()
				return
			}
			if len(a.group) == 0 {
				timer.Reset(groupWait)
			}
			a.add(p)
		case <-timer.C:
			a.flush()
		}
	}
}

// assembler is the group that is being made.
type assembler struct {
	groups        chan<- []*part
	group         []*part
	chunks, bytes int
}

func (a *assembler) add(p *part) {
	a.group = append(a.group, p)
	a.chunks += len(p.rows)
	a.bytes += p.bytes
	if a.chunks >= groupChunks || a.bytes >= groupBytes || len(a.group) >= groupDocuments {
		a.flush()
	}
}

func (a *assembler) flush() {
	if len(a.group) == 0 {
		return
	}
	a.groups <- a.group
	a.group, a.chunks, a.bytes = nil, 0, 0
}
