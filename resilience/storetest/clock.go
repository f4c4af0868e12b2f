package storetest

import "time"

func (m *Memory) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}

func wall() time.Time { return time.Now() }
