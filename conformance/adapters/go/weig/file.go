// Package weig loads files of the WEIG format, version 1. It was written from the specification
// alone; ids such as HDR-1 are the rules there.
package weig

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mode says how a file's bytes are held (section 17).
type Mode int

const (
	// Mmap maps the file itself. It is for files that nobody cuts or overwrites meanwhile.
	Mmap Mode = iota
	// Read copies the file; what happens to it afterwards does not matter (OPEN-14).
	Read
)

// File is an open file that passed all checks of level open.
type File struct {
	Tensors []*Tensor // in the order of the table
	Order   binary.ByteOrder
	Mode    Mode

	f        *os.File
	opened   os.FileInfo // its identity (OPEN-10)
	lock     sync.RWMutex
	closed   bool
	data     []byte // the whole file, outside the heap and read-only
	table    Span   // the meta table; the aux area lies between it and the data region
	region   Span   // the data region
	byName   map[string]*Tensor
	distinct []*Tensor // tensors with bytes, by where these lie, one of each group of aliases
}

// Open opens and checks a file. It gives out all of it or nothing (OPEN-6).
func Open(path string, mode Mode) (*File, error) {
	w := &File{Mode: mode}
	err := w.use(func() error {
		w.open(path)
		w.readHeader()
		w.load(w.opened.Size())
		return w.readTable()
	})
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// open opens a regular file and never waits (OPEN-1, OPEN-2).
func (w *File) open(path string) {
	var err error
	if w.f, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0); err == nil {
		w.opened, err = w.f.Stat() // of the descriptor (OPEN-3)
	} else {
		// A socket, or a device without a driver, cannot even be opened: only its path can tell.
		w.opened, _ = os.Stat(path)
	}
	irregular := w.opened != nil && !w.opened.Mode().IsRegular()
	ensure(!irregular, "NOT_REGULAR_FILE", "OPEN-1", "", "another kind of file")
	try(err)
}

// load maps or copies the file, whose size has been checked (OPEN-4).
func (w *File) load(size int64) {
	ensure(size <= math.MaxInt, "TOO_LARGE", "OPEN-9", "", size)
	if w.Mode == Mmap {
		w.data = must(unix.Mmap(int(w.f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED))
		return
	}
	// Not the heap: where that runs out the runtime ends the process, and this only fails.
	w.data = must(unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))
	must(w.f.ReadAt(w.data, 0)) // tries again after an interruption and a short read (OPEN-11)
	try(unix.Mprotect(w.data, unix.PROT_READ))
}

// use lends the file's bytes to fn and keeps them as long as that runs. It turns two panics into
// errors: a refusal, and the fault of a page that is gone because somebody cut the mapped file.
func (w *File) use(fn func() error) (err error) {
	w.lock.RLock()
	defer w.lock.RUnlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case *Error:
			err = cause
		case interface{ Addr() uintptr }:
			at := cause.Addr() - address(w.data)
			if at >= uintptr(len(w.data)) {
				panic(cause) // not of this file
			}
			err = &Error{Code: "TRUNCATED", Message: fmt.Sprintf("OPEN-11: byte %d is no longer there", at)}
		default:
			panic(cause)
		}
	}()
	ensure(!w.closed, "CLOSED", "OPEN-12", "", "the file was closed")
	return fn()
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Verify does deep verification (section 12). It may read the whole file.
func (w *File) Verify() error { return w.use(w.verify) }

// CheckUnmodified tells whether the file that was opened changed since (OPEN-10).
func (w *File) CheckUnmodified() error {
	return w.use(func() error {
		now, was := must(w.f.Stat()), w.opened
		same := os.SameFile(now, was) && now.Size() == was.Size() && now.ModTime().Equal(was.ModTime())
		ensure(same, "MODIFIED", "OPEN-10", "", now.ModTime().String())
		return nil
	})
}

// Close waits for views that are still in use, and then gives the memory back (OPEN-12).
func (w *File) Close() error {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.closed = true
	_ = unix.Munmap(w.data) // of what is not mapped, or no longer, is nothing
	w.data = nil
	return w.f.Close()
}

// Lookup returns the tensor with a name.
func (w *File) Lookup(name string) (*Tensor, error) {
	if t, ok := w.byName[name]; ok {
		return t, nil
	}
	return nil, &Error{Code: "NO_SUCH_TENSOR", Message: fmt.Sprintf("%+q", name)}
}

// Span is a range of bytes of the file.
type Span struct{ Start, Size uint64 }

func (s Span) end() uint64           { return s.Start + s.Size }
func (s Span) of(data []byte) []byte { return data[s.Start:s.end():s.end()] }

// in tells whether s lies in [from, to), in the form that cannot wrap.
func (s Span) in(from, to uint64) bool {
	return from <= s.Start && s.Start <= to && s.Size <= to-s.Start
}

// Tensor is one tensor. Its bytes can be had as long as its file is open.
type Tensor struct {
	Name  string
	Dtype *Dtype
	Shape []uint64
	Data  Span

	file    *File
	index   int
	nameAt  uint64
	shapeAt uint64
}

// View lends fn the bytes where they lie, in the byte order of the file. They are read-only: a
// write faults, and comes back as the error of a page that is gone. When fn is done they may go, so
// it must not keep them, nor close the file.
func (t *Tensor) View(fn func(b []byte) error) error {
	return t.file.use(func() error { return fn(t.Data.of(t.file.data)) })
}

// Address returns where in memory the bytes start.
func (t *Tensor) Address() uintptr { return address(t.file.data) + uintptr(t.Data.Start) }

// WriteLittleEndian writes the bytes, little-endian, to out, without a second copy of the whole.
func (t *Tensor) WriteLittleEndian(out io.Writer) error {
	return t.View(func(b []byte) error {
		if t.file.Order == binary.LittleEndian || t.Dtype.Unit == 1 {
			_, err := out.Write(b)
			return err
		}
		var buf [1 << 14]byte // a multiple of every unit, so that none is cut
		for piece := range slices.Chunk(b, len(buf)) {
			n := copy(buf[:], piece)
			for unit := range slices.Chunk(buf[:n], t.Dtype.Unit) {
				slices.Reverse(unit)
			}
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
		}
		return nil
	})
}
