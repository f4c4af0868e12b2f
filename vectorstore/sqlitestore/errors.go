package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Error is the error of every method of a [Store].
type Error struct {
	Op   string     // the method, for example "Upsert"
	Path string     // the file
	Code codes.Code // the kind of fault, in the SDK's own vocabulary
	Hint string     // what an operator can do; may be empty
	Err  error      // the cause, never nil
}

// Error returns what failed, on which file, why, and what to do.
func (e *Error) Error() string {
	msg := fmt.Sprintf("sqlitestore: %s on %s: %v", e.Op, e.Path, e.Err)
	if e.Hint != "" {
		msg += " (" + e.Hint + ")"
	}
	return msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// GRPCStatus makes status.Code and status.FromError work on the error, so that
// a classifier written for the server's errors understands the store's.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Error()) }

// fault is an error with its code; wrap adds the rest.
type fault struct {
	code codes.Code
	msg  string
}

func (f *fault) Error() string { return f.msg }

func invalid(format string, args ...any) error {
	return &fault{code: codes.InvalidArgument, msg: fmt.Sprintf(format, args...)}
}

func faultf(code codes.Code, format string, args ...any) error {
	return &fault{code: code, msg: fmt.Sprintf(format, args...)}
}

func (s *Store) wrap(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Path: s.path, Err: err}
	var (
		f  *fault
		sq *sqlite.Error
	)
	switch {
	case errors.As(err, &f):
		e.Code = f.code
	case ctx.Err() != nil:
		e.Code, e.Err = status.FromContextError(ctx.Err()).Code(), ctx.Err()
	case errors.As(err, &sq):
		e.Code, e.Hint = sqliteCode(sq.Code())
	case strings.Contains(err.Error(), "database is closed"): // database/sql has no value for it
		e.Code, e.Hint = codes.FailedPrecondition, "the store was closed"
	default:
		e.Code = codes.Internal
	}
	return e
}

// sqliteCode returns the status and the hint for SQLite's primary result codes.
func sqliteCode(code int) (codes.Code, string) {
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return codes.Unavailable, "another process is writing; run again when it is done"
	case sqlite3.SQLITE_FULL:
		return codes.ResourceExhausted, "the disk is full; make room and run again"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return codes.PermissionDenied, "make the file and its folder writable"
	case sqlite3.SQLITE_CANTOPEN:
		return codes.FailedPrecondition, "check that the folder exists and may be written to"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return codes.DataLoss, "the file is damaged or no database; move it away and ingest again"
	case sqlite3.SQLITE_TOOBIG:
		return codes.InvalidArgument, "a value is too large"
	case sqlite3.SQLITE_IOERR:
		return codes.Internal, "the disk failed to read or write"
	default:
		return codes.Internal, ""
	}
}
