package weig

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Error is a refusal (OPEN-13). Text that comes from a file stands in it escaped.
type Error struct {
	Code    string // one of section 14
	Field   string // as the specification writes it, or ""
	Message string
	Err     error // what the operating system said, or nil
}

func (e *Error) Error() string { return fmt.Sprintf("weig: %s: %s %s", e.Code, e.Message, e.Field) }
func (e *Error) Unwrap() error { return e.Err }

// ensure holds one rule of the specification. A broken one ends the whole check by a panic that
// never leaves the package: File.guard turns it into an error. Field and found are written out only
// where that happens, found as Go would write it in a program: text of a file is quoted.
func ensure[F, V any](holds bool, code, rule string, field F, found V) {
	if !holds {
		panic(&Error{Code: code, Field: fmt.Sprint(field), Message: fmt.Sprintf("%s: %#v", rule, found)})
	}
}

// try does the same for what the operating system refused: a file that ends early is TRUNCATED
// (OPEN-11), a lack of addresses or memory TOO_LARGE (OPEN-9), the rest IO.
func try(err error) {
	code := "IO"
	switch {
	case err == nil:
		return
	case errors.Is(err, io.EOF):
		code = "TRUNCATED"
	case errors.Is(err, unix.ENOMEM):
		code = "TOO_LARGE"
	}
	// Escaped, because the path stands in it, which is the caller's and may hold anything.
	panic(&Error{Code: code, Message: fmt.Sprintf("%+q", err.Error()), Err: err})
}

// must gives the value of a call that succeeded, and does the same where it did not.
func must[T any](value T, err error) T {
	try(err)
	return value
}

// field is a field of a record.
type field struct {
	record int
	name   string
}

func (f field) String() string { return fmt.Sprintf("meta[%d].%s", f.record, f.name) }
