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

// assemble makes groups of parts, in the order in which they come. A group that
// is due still grows while every committer is busy: the slower they are, the
// more a call of theirs does. It ends when parts is closed and the last group
// is taken.
func assemble(parts <-chan *part, groups chan<- []*part) {
	var a assembler
	timer := time.NewTimer(groupWait)
	defer timer.Stop()
	for parts != nil || len(a.group) > 0 {
		select {
		case p, ok := <-a.room(parts):
			if !ok {
				parts, a.due = nil, true
				continue
			}
			if len(a.group) == 0 {
				timer.Reset(groupWait)
			}
			a.add(p)
		case <-timer.C:
			a.due = true
		case a.ready(groups) <- a.group:
			a = assembler{due: parts == nil}
		}
	}
}

// assembler is the group that is being made.
type assembler struct {
	group         []*part
	chunks, bytes int
	due           bool // it has waited long enough
}

func (a *assembler) add(p *part) {
	a.group = append(a.group, p)
	a.chunks += len(p.rows)
	a.bytes += p.bytes
}

func (a *assembler) full() bool {
	return a.chunks >= groupChunks || a.bytes >= groupBytes || len(a.group) >= groupDocuments
}

// room is where more comes from, nil for a full group.
func (a *assembler) room(parts <-chan *part) <-chan *part {
	if a.full() {
		return nil
	}
	return parts
}

// ready is where the group may go, nil while it waits for company.
func (a *assembler) ready(groups chan<- []*part) chan<- []*part {
	if len(a.group) > 0 && (a.due || a.full()) {
		return groups
	}
	return nil
}
