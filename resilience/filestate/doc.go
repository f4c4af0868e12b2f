// Package filestate keeps the records of shared breakers in one file, for the
// processes of one machine: runs that cron starts one after the other, or a few
// workers, without a server.
//
//	store, err := filestate.New("/var/lib/worker/breakers.json", filestate.Config{})
//	fleet := resilience.NewFleet(store, resilience.FleetConfig{})
//
// # The file
//
// It is JSON that a person can read, and belongs to the user that wrote it
// last, with mode 0600. It is written beside its place, brought to the disk and
// renamed: a process that is killed, or a machine that loses power, leaves the
// old file or the new one. Beside it stay a lock, with ".lock" behind its name,
// and from a process that was killed a file with ".tmp", which the next write
// replaces. Removing the file while no process writes closes the breakers.
//
// Writers take turns by the lock, each for one read and one write. Readers
// share it; where it cannot be opened, in a folder that is read-only, they do
// without. The lock is that of the operating system (flock, LockFileEx), which
// ends with its process. Network file systems may not have it, so the file
// belongs on a local disk.
//
// A file that cannot be read as such is an empty one, and said in the log, once
// for each content. The next write sets it aside, with ".broken" behind its
// name in place of an older one: it may have been the wrong file.
//
// # The clock
//
// A record's Now is the clock of the machine. Versions do not return when that
// steps back, as long as the file exists.
//
// # What it costs
//
// A write costs a read and two calls of fsync, some milliseconds, a watch one
// read each Config.Poll.
package filestate
