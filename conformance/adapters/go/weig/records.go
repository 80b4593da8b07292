package weig

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

type record struct {
	nameOffset   uint64
	name         string
	dtype        Dtype
	shapeOffset  uint64
	shape        []uint64
	offset, size uint64
}

// place sorts records by where their bytes lie; it is 0 for aliases (DATA-4).
func place(a, b *record) int {
	return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.size, b.size), cmp.Compare(a.dtype, b.dtype))
}

// shapeKey finds arrays that records share, so that each is kept once.
type shapeKey struct{ offset, count uint64 }

var recordNumbers = []string{"name_offset", "shape_offset", "shape_count", "data_offset", "data_size"}

// readRecords holds the table against sections 3, 5 and 8 to 10; names come after it.
func (w *File) readRecords(data []byte) error {
	h := &w.hdr
	// META-3 and REGION-2 say that the table is in the file, but holes make room for more records than
	// memory has: it is taken for those that are good.
	table := data[h.metaOffset:h.auxStart()]
	shapes := make(map[shapeKey][]uint64)
	for i := 0; len(table) > 0; i, table = i+1, table[recordSize:] {
		var r record
		if err := w.readRecord(&r, fmt.Sprintf("meta[%d].", i), table, data, shapes); err != nil {
			return err
		}
		w.records = append(w.records, r)
	}
	return nil
}

func (w *File) readRecord(r *record, at string, b, data []byte, shapes map[shapeKey][]uint64) error {
	h := &w.hdr
	u64 := func(at int) uint64 { return w.order.Uint64(b[at:]) }
	key := shapeKey{u64(16), u64(24)}
	*r = record{nameOffset: u64(0), dtype: Dtype(w.order.Uint32(b[8:])), offset: u64(32), size: u64(40)}
	if err := checkNumbers(at, recordNumbers, r.nameOffset, key.offset, key.count, r.offset, r.size); err != nil {
		return err
	}
	switch pad := w.order.Uint32(b[12:]); {
	case pad != 0:
		return refuse(BadReserved, at+"pad", "META-4: %d", pad)
	case !r.dtype.known():
		return refuse(BadDtype, at+"dtype", "DTYPE-1: %d", uint32(r.dtype))
	case r.nameOffset < h.auxStart(), r.nameOffset >= h.dataOffset:
		return refuse(BadName, at+"name_offset", "NAME-1: %d", r.nameOffset)
	case key.count > 64:
		return refuse(BadShape, at+"shape_count", "SHAPE-1: %d", key.count)
	case key.offset < h.auxStart(), key.offset > h.dataOffset, key.count > (h.dataOffset-key.offset)/8:
		return refuse(BadShape, at+"shape_offset", "SHAPE-2: %d", key.offset)
	}
	if _, seen := shapes[key]; !seen {
		dims := make([]uint64, key.count)
		for i := range dims {
			dims[i] = w.order.Uint64(data[key.offset+8*uint64(i):]) // at any alignment (SHAPE-3)
		}
		shapes[key] = dims
	}
	r.shapeOffset, r.shape = key.offset, shapes[key]
	size, err := byteSize(r.shape, r.dtype, at+"shape")
	if err != nil {
		return err
	}
	switch {
	case r.size != size:
		return refuse(BadDataSize, at+"data_size", "SHAPE-5: %d, and not %d", r.size, size)
	case r.offset%64 != 0:
		return refuse(Misaligned, at+"data_offset", "DATA-1: %d", r.offset)
	case r.offset < h.dataOffset:
		return refuse(BadDataRange, at+"data_offset", "DATA-2: %d", r.offset)
	case r.offset > h.end(), r.size > h.end()-r.offset:
		return refuse(BadDataRange, at+"data_offset", "DATA-3: %d bytes at %d", r.size, r.offset)
	}
	return nil
}

// byteSize returns how many bytes a shape needs. Dimensions that are zero stay out of the product
// that SHAPE-4 limits, so that their place among the others makes no difference.
func byteSize(shape []uint64, dtype Dtype, field string) (uint64, error) {
	product := dtype.Size()
	for _, dim := range shape {
		switch {
		case dim > maxNumber:
			return 0, refuse(NumberTooLarge, field, "NUM-2: %d", dim)
		case dim == 0:
			continue
		case product > maxNumber/dim:
			return 0, refuse(BadShape, field, "SHAPE-4: %d", shape)
		}
		product *= dim
	}
	if slices.Contains(shape, 0) {
		return 0, nil
	}
	return product, nil
}

// readNames holds section 7 against all names. It goes through them in the order of their offsets:
// then names that share storage share one string too, and no byte is looked at for a NUL twice.
func (w *File) readNames(data []byte) error {
	byOffset := make([]int, len(w.records))
	for i := range byOffset {
		byOffset[i] = i
	}
	slices.SortFunc(byOffset, func(a, b int) int {
		return cmp.Compare(w.records[a].nameOffset, w.records[b].nameOffset)
	})
	var text string         // the last string that was read
	var start, after uint64 // where it starts, and what follows its NUL
	w.byName = make(map[string]int, len(w.records))
	for _, i := range byOffset {
		r := &w.records[i]
		field := fmt.Sprintf("meta[%d].name_offset", i)
		if r.nameOffset >= after {
			window := data[r.nameOffset:min(r.nameOffset+1024, w.hdr.dataOffset)]
			n := bytes.IndexByte(window, 0)
			if n < 0 {
				return refuse(BadName, field, "NAME-2 or NAME-3: no NUL where one must be")
			}
			text, start, after = string(window[:n]), r.nameOffset, r.nameOffset+uint64(n)+1
		}
		r.name = text[r.nameOffset-start:]
		switch {
		case r.name == "":
			return refuse(BadName, field, "NAME-3: empty")
		case !utf8.ValidString(r.name): // the strict sense: it knows no surrogates and no long forms
			return refuse(BadName, field, "NAME-4: %+q", r.name)
		case strings.ContainsFunc(r.name, func(c rune) bool { return c < 0x20 || c == 0x7f }):
			return refuse(BadName, field, "NAME-5: %+q", r.name)
		}
		if other, twice := w.byName[r.name]; twice {
			return refuse(DuplicateName, field, "NAME-6: %+q, as meta[%d]", r.name, other)
		}
		w.byName[r.name] = i // Go seeds the hash of its maps anew in each process (OPEN-5)
	}
	return nil
}

// checkOverlaps holds DATA-4: in the order of offsets only neighbours can overlap first.
func (w *File) checkOverlaps() error {
	for i := range w.records {
		if w.records[i].size > 0 {
			w.byData = append(w.byData, i)
		}
	}
	slices.SortFunc(w.byData, func(a, b int) int { return place(&w.records[a], &w.records[b]) })
	for n := 1; n < len(w.byData); n++ {
		i, j := w.byData[n-1], w.byData[n]
		a, b := &w.records[i], &w.records[j]
		if place(a, b) != 0 && b.offset-a.offset < a.size {
			return refuse(Overlap, fmt.Sprintf("meta[%d].data_offset", j), "DATA-4: shares bytes with meta[%d]", i)
		}
	}
	return nil
}
