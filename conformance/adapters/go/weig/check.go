package weig

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxNumber  = 1<<53 - 1 // NUM-2
	headerSize = 64
	recordSize = 48
	tailSize   = 8
	maxName    = 1024 // NAME-3, with the NUL
	sentinel   = 0x57454947454E4421
)

// readHeader holds sections 3 to 6 and 11 against both ends of the file. They are read and not
// faulted in, which would make the kernel read far more.
func (w *File) readHeader() {
	actual := uint64(w.opened.Size())
	ensure(actual >= headerSize+tailSize, "TOO_SMALL", "HDR-1", "", actual)
	var head [headerSize]byte
	var tail [tailSize]byte
	must(w.f.ReadAt(head[:], 0))
	must(w.f.ReadAt(tail[:], w.opened.Size()-tailSize))
	switch string(head[:4]) {
	case "GIEW":
		w.Order = binary.LittleEndian
	case "WEIG":
		w.Order = binary.BigEndian
	default:
		ensure(false, "BAD_MAGIC", "HDR-2", "header.magic", guess(string(head[:])))
	}
	u64 := func(at int) uint64 { return w.Order.Uint64(head[at:]) }
	version, flags, reserved, last := w.Order.Uint32(head[4:]), u64(40), u64(48)|u64(56), w.Order.Uint64(tail[:])
	count, meta, data, size := u64(8), u64(16), u64(24), u64(32)
	ensure(version == 1, "BAD_VERSION", "HDR-3", "header.version", version)
	ensure(count <= maxNumber, "NUMBER_TOO_LARGE", "NUM-2", "header.tensor_count", count)
	ensure(meta <= maxNumber, "NUMBER_TOO_LARGE", "NUM-2", "header.meta_offset", meta)
	ensure(data <= maxNumber, "NUMBER_TOO_LARGE", "NUM-2", "header.data_offset", data)
	ensure(size <= maxNumber, "NUMBER_TOO_LARGE", "NUM-2", "header.file_size", size)
	ensure(size%8 == 0 && size >= headerSize+tailSize, "BAD_FILE_SIZE", "HDR-4", "header.file_size", size)
	ensure(actual >= size, "TRUNCATED", "HDR-5", "header.file_size", size)
	ensure(actual <= size, "TRAILING_DATA", "HDR-6", "header.file_size", size)
	ensure(uint32(flags) == 0, "UNKNOWN_FLAG", "HDR-7", "header.flags", flags) // bits 0 to 31
	ensure(reserved == 0, "BAD_RESERVED", "HDR-8", "header.reserved", reserved)
	ensure(meta >= headerSize, "BAD_META_TABLE", "META-1", "header.meta_offset", meta)
	ensure(meta%8 == 0, "BAD_META_TABLE", "META-2", "header.meta_offset", meta)
	w.table = Span{meta, recordSize * count} // does not wrap, by NUM-2
	ensure(w.table.in(meta, data), "BAD_META_TABLE", "META-3", "header.tensor_count", count)
	ensure(data%64 == 0, "MISALIGNED", "REGION-1", "header.data_offset", data)
	ensure(data <= size-tailSize, "BAD_DATA_REGION", "REGION-2", "header.data_offset", data)
	w.region = Span{data, size - tailSize - data}
	ensure(last == sentinel, "BAD_SENTINEL", "TAIL-1", "sentinel", last)
}

var otherFormats = []struct{ start, name string }{
	{"version https://git-lfs", "a git-LFS pointer: the file itself was not fetched"},
	{"<", "HTML, or the like"},
	{"PK\x03\x04", "ZIP"},
	{"GGUF", "GGUF"},
	{"\x1f\x8b", "gzip"},
	{"\x93NUMPY", "npy"},
}

// guess names what a file without the magic is, for the person who took the wrong one.
func guess(head string) string {
	for _, format := range otherFormats {
		if strings.HasPrefix(head, format.start) {
			return format.name
		}
	}
	if head[8] == '{' {
		return "perhaps safetensors"
	}
	return "no known format"
}

// readTable holds the records against sections 3, 5 and 7 to 10.
func (w *File) readTable() error {
	w.byName = make(map[string]*Tensor) // Go seeds the hash anew for each map (OPEN-5)
	blocks, shapes := make(map[uint64]string), make(map[Span][]uint64)
	// Memory grows with the records that were found good, and never by their number alone (OPEN-4).
	for i := range int(w.table.Size / recordSize) {
		t := &Tensor{file: w, index: i}
		shape := w.readRecord(t)
		w.readName(t, blocks)
		w.readShape(t, shape, shapes)
		w.Tensors = append(w.Tensors, t)
	}
	w.checkOverlaps()
	return nil
}

// readRecord gives where the shape array is said to lie.
func (w *File) readRecord(t *Tensor) Span {
	raw := w.table.of(w.data)[t.index*recordSize:]
	number := func(at int, name string) uint64 {
		value := w.Order.Uint64(raw[at:])
		ensure(value <= maxNumber, "NUMBER_TOO_LARGE", "NUM-2", field{t.index, name}, value)
		return value
	}
	t.nameAt = number(0, "name_offset")
	shape := Span{number(16, "shape_offset"), 8 * number(24, "shape_count")} // does not wrap, by NUM-2
	t.Data.Start = number(32, "data_offset")
	t.Data.Size = number(40, "data_size")
	dtype, pad := w.Order.Uint32(raw[8:]), w.Order.Uint32(raw[12:])
	ensure(pad == 0, "BAD_RESERVED", "META-4", field{t.index, "pad"}, pad)
	ensure(uint64(dtype) < uint64(len(dtypes)), "BAD_DTYPE", "DTYPE-1", field{t.index, "dtype"}, dtype)
	t.Dtype = dtypes[dtype]
	return shape
}

// readName holds section 7. Names are cut out of copies of whole blocks: so names that share storage
// share the copy too.
func (w *File) readName(t *Tensor, blocks map[uint64]string) {
	at, end, where := t.nameAt, w.region.Start, field{t.index, "name_offset"}
	ensure(w.table.end() <= at && at < end, "BAD_NAME", "NAME-1", where, at)
	block := at / maxName * maxName
	if _, seen := blocks[block]; !seen {
		blocks[block] = string(w.data[block:min(block+2*maxName, end)])
	}
	text := blocks[block][at-block:]
	size := strings.IndexByte(text[:min(len(text), maxName)], 0)
	ensure(size > 0, "BAD_NAME", "NAME-2 or NAME-3", where, size) // -1: no NUL where one must be
	t.Name = text[:size]
	control := func(c rune) bool { return c < 0x20 || c == 0x7f }
	// utf8 has the strict sense: it knows no surrogates and no long forms.
	ensure(utf8.ValidString(t.Name), "BAD_NAME", "NAME-4", where, t.Name)
	ensure(!strings.ContainsFunc(t.Name, control), "BAD_NAME", "NAME-5", where, t.Name)
	_, twice := w.byName[t.Name]
	ensure(!twice, "DUPLICATE_NAME", "NAME-6", where, t.Name)
	w.byName[t.Name] = t
}

// readShape holds sections 9 and 10. Arrays that records share are kept once.
func (w *File) readShape(t *Tensor, array Span, shapes map[Span][]uint64) {
	start, size := t.Data.Start, t.Dtype.Size
	ensure(array.Size <= 8*64, "BAD_SHAPE", "SHAPE-1", field{t.index, "shape_count"}, array.Size/8)
	ensure(array.in(w.table.end(), w.region.Start), "BAD_SHAPE", "SHAPE-2", field{t.index, "shape_offset"}, array.Start)
	if _, seen := shapes[array]; !seen {
		shapes[array] = make([]uint64, array.Size/8)
		for d := range shapes[array] {
			shapes[array][d] = w.Order.Uint64(array.of(w.data)[8*d:]) // at any alignment (SHAPE-3)
		}
	}
	t.shapeAt, t.Shape = array.Start, shapes[array]
	for _, dim := range t.Shape {
		factor := max(dim, 1) // zeros stay out of the product, wherever they stand
		ensure(dim <= maxNumber, "NUMBER_TOO_LARGE", "NUM-2", field{t.index, "shape"}, dim)
		ensure(size <= maxNumber/factor, "BAD_SHAPE", "SHAPE-4", field{t.index, "shape"}, dim)
		size *= factor
	}
	if slices.Contains(t.Shape, 0) {
		size = 0
	}
	ensure(t.Data.Size == size, "BAD_DATA_SIZE", "SHAPE-5", field{t.index, "data_size"}, t.Data.Size)
	ensure(start%64 == 0, "MISALIGNED", "DATA-1", field{t.index, "data_offset"}, start)
	ensure(start >= w.region.Start, "BAD_DATA_RANGE", "DATA-2", field{t.index, "data_offset"}, start)
	ensure(t.Data.in(start, w.region.end()), "BAD_DATA_RANGE", "DATA-3", field{t.index, "data_offset"}, start)
}

// place sorts tensors by where their bytes lie; it is 0 for aliases (DATA-4).
func place(a, b *Tensor) int {
	return cmp.Or(cmp.Compare(a.Data.Start, b.Data.Start), cmp.Compare(a.Data.Size, b.Data.Size),
		cmp.Compare(a.Dtype.Name, b.Dtype.Name))
}

// checkOverlaps holds DATA-4: in the order of offsets only neighbours can overlap first.
func (w *File) checkOverlaps() {
	empty := func(t *Tensor) bool { return t.Data.Size == 0 }
	w.distinct = slices.DeleteFunc(slices.Clone(w.Tensors), empty)
	slices.SortFunc(w.distinct, place)
	w.distinct = slices.CompactFunc(w.distinct, func(a, b *Tensor) bool { return place(a, b) == 0 })
	end := uint64(0)
	for _, t := range w.distinct {
		ensure(t.Data.Start >= end, "OVERLAP", "DATA-4", field{t.index, "data_offset"}, t.Data.Start)
		end = t.Data.end()
	}
}

// verify holds section 12.
func (w *File) verify() error {
	w.checkPadding()
	w.checkBools()
	return nil
}

// checkPadding holds PAD-1 against the bytes between what is owned.
func (w *File) checkPadding() {
	owned := []Span{{0, headerSize}, w.table, {w.region.end(), tailSize}}
	for _, t := range w.Tensors {
		name, shape := Span{t.nameAt, uint64(len(t.Name)) + 1}, Span{t.shapeAt, 8 * uint64(len(t.Shape))}
		owned = append(owned, name, shape, t.Data)
	}
	slices.SortFunc(owned, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	done := uint64(0) // what lies before it is owned or was looked at
	for _, next := range owned {
		if next.Start > done {
			gap := Span{done, next.Start - done}.of(w.data)
			ensure(len(bytes.TrimLeft(gap, "\x00")) == 0, "NONZERO_PADDING", "PAD-1", "padding", done)
		}
		done = max(done, next.end())
	}
}

// checkBools holds BOOL-1. One look is enough for all aliases.
func (w *File) checkBools() {
	for _, t := range w.distinct {
		if t.Dtype.Name == "BOOL" {
			wrong := slices.IndexFunc(t.Data.of(w.data), func(b byte) bool { return b > 1 })
			ensure(wrong < 0, "BAD_BOOL", "BOOL-1", field{t.index, "data"}, wrong)
		}
	}
}
