package weig

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Code is one of the error codes of section 14. The list is closed.
type Code string

const (
	IO             Code = "IO"
	NotRegularFile Code = "NOT_REGULAR_FILE"
	TooLarge       Code = "TOO_LARGE"
	TooSmall       Code = "TOO_SMALL"
	BadMagic       Code = "BAD_MAGIC"
	BadVersion     Code = "BAD_VERSION"
	UnknownFlag    Code = "UNKNOWN_FLAG"
	BadReserved    Code = "BAD_RESERVED"
	Truncated      Code = "TRUNCATED"
	TrailingData   Code = "TRAILING_DATA"
	BadFileSize    Code = "BAD_FILE_SIZE"
	BadSentinel    Code = "BAD_SENTINEL"
	BadMetaTable   Code = "BAD_META_TABLE"
	BadDataRegion  Code = "BAD_DATA_REGION"
	Misaligned     Code = "MISALIGNED"
	BadDtype       Code = "BAD_DTYPE"
	BadName        Code = "BAD_NAME"
	DuplicateName  Code = "DUPLICATE_NAME"
	BadShape       Code = "BAD_SHAPE"
	BadDataSize    Code = "BAD_DATA_SIZE"
	BadDataRange   Code = "BAD_DATA_RANGE"
	Overlap        Code = "OVERLAP"
	NumberTooLarge Code = "NUMBER_TOO_LARGE"
	NonzeroPadding Code = "NONZERO_PADDING"
	BadBool        Code = "BAD_BOOL"
	Modified       Code = "MODIFIED"
	Closed         Code = "CLOSED"
	NoSuchTensor   Code = "NO_SUCH_TENSOR"
)

// Error is a refusal (OPEN-13). Text that comes from a file stands in it escaped.
type Error struct {
	Code    Code
	Field   string // as the specification writes it, or ""
	Message string
	Err     error // what the operating system said, or nil
}

func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("weig: %s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("weig: %s: %s: %s", e.Code, e.Field, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }

// refuse makes an Error. Names and other text of a file are formatted with %+q and nothing else.
func refuse(code Code, field, format string, args ...any) error {
	return &Error{Code: code, Field: field, Message: fmt.Sprintf(format, args...)}
}

// refused gives what the operating system said a code: a file that ends early is TRUNCATED
// (OPEN-11), a lack of addresses or memory TOO_LARGE (OPEN-9), the rest IO.
func refused(err error) error {
	if err == nil {
		return nil
	}
	code := IO
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		code = Truncated
	case errors.Is(err, unix.ENOMEM):
		code = TooLarge
	}
	text := err
	// The path is the caller's, and may hold anything: it stays out of the message.
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		text = p.Err
	}
	return &Error{Code: code, Message: text.Error(), Err: err}
}
