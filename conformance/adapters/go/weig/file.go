// Package weig loads files of the WEIG format, version 1. It was written from the specification
// alone; ids such as HDR-1 are the rules there.
package weig

import (
	"encoding/binary"
	"io"
	"os"
	"slices"
)

// Mode says how a file's bytes are held (section 17).
type Mode int

const (
	// Mmap maps the file itself. It is for files that nobody cuts or overwrites meanwhile.
	Mmap Mode = iota
	// Read copies the file; what happens to it afterwards does not matter (OPEN-14).
	Read
)

const (
	maxNumber  = 1<<53 - 1 // NUM-2
	headerSize = 64
	recordSize = 48
	tailSize   = 8
	minSize    = headerSize + tailSize
	sentinel   = 0x57454947454E4421
)

// File is an open file that passed all checks of level open. Its tensors stay good after Close.
type File struct {
	f       *os.File
	id      identity
	mem     *memory
	order   binary.ByteOrder
	hdr     header
	records []record
	byName  map[string]int
	byData  []int // the records that have bytes, by where these lie
	closed  bool
}

type header struct {
	count, metaOffset, dataOffset, fileSize uint64
}

func (h *header) auxStart() uint64 { return h.metaOffset + recordSize*h.count }
func (h *header) end() uint64      { return h.fileSize - tailSize }

// Open opens and checks a file. It gives out all of it or nothing (OPEN-6).
func Open(path string, mode Mode) (_ *File, err error) {
	f, id, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if id.size < minSize {
		return nil, refuse(TooSmall, "", "HDR-1: %d bytes", id.size)
	}
	w := &File{f: f, id: id}
	// Both ends are read and not faulted in, which would make the kernel read far more.
	var head [headerSize]byte
	var tail [tailSize]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return nil, refused(err)
	}
	if err := w.readHeader(head[:]); err != nil {
		return nil, err
	}
	if _, err := f.ReadAt(tail[:], int64(w.hdr.end())); err != nil {
		return nil, refused(err)
	}
	if got := w.order.Uint64(tail[:]); got != sentinel {
		return nil, refuse(BadSentinel, "sentinel", "TAIL-1: %#x", got)
	}
	if w.mem, err = newMemory(f, id.size, mode); err != nil {
		return nil, err
	}
	err = w.mem.use(func(data []byte) error {
		if err := w.readRecords(data); err != nil {
			return err
		}
		if err := w.readNames(data); err != nil {
			return err
		}
		return w.checkOverlaps()
	})
	if err != nil {
		w.mem.release()
		return nil, err
	}
	return w, nil
}

// checkNumbers holds NUM-2 against fields and their values.
func checkNumbers(prefix string, names []string, values ...uint64) error {
	for i, v := range values {
		if v > maxNumber {
			return refuse(NumberTooLarge, prefix+names[i], "NUM-2: %d", v)
		}
	}
	return nil
}

var headerNumbers = []string{"tensor_count", "meta_offset", "data_offset", "file_size"}

func (w *File) readHeader(b []byte) error {
	switch string(b[:4]) { // HDR-2
	case "GIEW":
		w.order = binary.LittleEndian
	case "WEIG":
		w.order = binary.BigEndian
	default:
		return refuse(BadMagic, "header.magic", "HDR-2: this is %s", guess(b))
	}
	u64 := func(at int) uint64 { return w.order.Uint64(b[at:]) }
	if v := w.order.Uint32(b[4:]); v != 1 {
		return refuse(BadVersion, "header.version", "HDR-3: version %d", v)
	}
	w.hdr = header{count: u64(8), metaOffset: u64(16), dataOffset: u64(24), fileSize: u64(32)}
	h := &w.hdr
	if err := checkNumbers("header.", headerNumbers, h.count, h.metaOffset, h.dataOffset, h.fileSize); err != nil {
		return err
	}
	switch real := uint64(w.id.size); {
	case h.fileSize%8 != 0, h.fileSize < minSize:
		return refuse(BadFileSize, "header.file_size", "HDR-4: %d", h.fileSize)
	case real < h.fileSize:
		return refuse(Truncated, "header.file_size", "HDR-5: %d, but only %d are there", h.fileSize, real)
	case real > h.fileSize:
		return refuse(TrailingData, "header.file_size", "HDR-6: %d, but %d are there", h.fileSize, real)
	case uint32(u64(40)) != 0: // the lower half; the upper half may be ignored
		return refuse(UnknownFlag, "header.flags", "HDR-7: %#x", u64(40))
	case u64(48) != 0, u64(56) != 0:
		return refuse(BadReserved, "header.reserved", "HDR-8: not zero")
	case h.metaOffset < headerSize:
		return refuse(BadMetaTable, "header.meta_offset", "META-1: %d", h.metaOffset)
	case h.metaOffset%8 != 0:
		return refuse(BadMetaTable, "header.meta_offset", "META-2: %d", h.metaOffset)
	case h.metaOffset > h.dataOffset, h.count > (h.dataOffset-h.metaOffset)/recordSize:
		return refuse(BadMetaTable, "header.tensor_count", "META-3: %d records from %d to %d", h.count, h.metaOffset, h.dataOffset)
	case h.dataOffset%64 != 0:
		return refuse(Misaligned, "header.data_offset", "REGION-1: %d", h.dataOffset)
	case h.dataOffset > h.end():
		return refuse(BadDataRegion, "header.data_offset", "REGION-2: %d", h.dataOffset)
	}
	return nil
}

// guess names what a file without the magic is, for the person who took the wrong one.
func guess(b []byte) string {
	for _, known := range []struct {
		at         int
		text, name string
	}{
		{0, "version https://git-lfs", "a git-LFS pointer: the file itself was not fetched"},
		{0, "<!", "HTML"},
		{0, "<html", "HTML"},
		{0, "PK\x03\x04", "ZIP"},
		{0, "GGUF", "GGUF"},
		{0, "\x1f\x8b", "gzip"},
		{0, "\x93NUMPY", "npy"},
		{8, "{", "perhaps safetensors"},
	} {
		if string(b[known.at:known.at+len(known.text)]) == known.text {
			return known.name
		}
	}
	return "no known format"
}

// Len returns the number of tensors.
func (w *File) Len() int { return len(w.records) }

// BigEndian tells the byte order of the file (NUM-1).
func (w *File) BigEndian() bool { return w.order == binary.BigEndian }

// Tensor returns the tensor at place i of the table.
func (w *File) Tensor(i int) (*Tensor, error) {
	switch {
	case w.closed:
		return nil, refuse(Closed, "", "the file was closed")
	case i < 0 || i >= len(w.records):
		return nil, refuse(NoSuchTensor, "", "no record %d", i)
	}
	return &Tensor{mem: w.mem, rec: &w.records[i], order: w.order}, nil
}

// Lookup returns the tensor with a name.
func (w *File) Lookup(name string) (*Tensor, error) {
	if i, ok := w.byName[name]; ok || w.closed {
		return w.Tensor(i)
	}
	return nil, refuse(NoSuchTensor, "", "%+q", name)
}

// CheckUnmodified tells whether the file that was opened changed since (OPEN-10).
func (w *File) CheckUnmodified() error {
	if w.closed {
		return refuse(Closed, "", "the file was closed")
	}
	now, err := identify(w.f)
	if err == nil && now != w.id {
		err = refuse(Modified, "", "OPEN-10: changed after it was opened")
	}
	return err
}

// Close ends the use of w. Memory goes when the last tensor is gone too (OPEN-12).
func (w *File) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	w.mem = nil
	return refused(w.f.Close())
}

// Tensor is one tensor. It keeps the memory of its file.
type Tensor struct {
	mem   *memory
	rec   *record
	order binary.ByteOrder
}

func (t *Tensor) Name() string    { return t.rec.name }
func (t *Tensor) Dtype() Dtype    { return t.rec.dtype }
func (t *Tensor) Shape() []uint64 { return slices.Clone(t.rec.shape) }
func (t *Tensor) Size() uint64    { return t.rec.size }

// Offset returns where the bytes start in the file.
func (t *Tensor) Offset() uint64 { return t.rec.offset }

// Mapped tells whether the bytes are those of the file itself, and not a copy.
func (t *Tensor) Mapped() bool { return t.mem.mapped }

// View lends fn the bytes where they lie, in the byte order of the file. They are read-only: a
// write faults, and comes back as the error of a page that is gone. fn must not keep them, because a slice does not keep a map in place.
func (t *Tensor) View(fn func(b []byte) error) error {
	return t.mem.use(func(data []byte) error {
		end := t.rec.offset + t.rec.size
		return fn(data[t.rec.offset:end:end])
	})
}

// Address returns where in memory the bytes start.
func (t *Tensor) Address() (at uintptr, err error) {
	err = t.View(func(b []byte) error { at = address(b); return nil })
	return at, err
}

// WriteLittleEndian writes the bytes, little-endian, to out, without a second copy of the whole.
func (t *Tensor) WriteLittleEndian(out io.Writer) error {
	return t.View(func(b []byte) error {
		unit := t.rec.dtype.Unit()
		if t.order == binary.LittleEndian || unit == 1 {
			_, err := out.Write(b)
			return err
		}
		var buf [1 << 14]byte // a multiple of every unit, so that none is cut
		for piece := range slices.Chunk(b, len(buf)) {
			n := copy(buf[:], piece)
			for word := range slices.Chunk(buf[:n], unit) {
				slices.Reverse(word)
			}
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
		}
		return nil
	})
}
