package weig

import (
	"cmp"
	"fmt"
	"slices"
)

// Verify does deep verification (section 12). It may read the whole file.
func (w *File) Verify() error {
	if w.closed {
		return refuse(Closed, "", "the file was closed")
	}
	return w.mem.use(func(data []byte) error {
		if err := w.checkPadding(data); err != nil {
			return err
		}
		return w.checkBools(data)
	})
}

type extent struct{ start, end uint64 }

// checkPadding holds PAD-1 against the bytes between what is owned.
func (w *File) checkPadding(data []byte) error {
	h := &w.hdr
	owned := []extent{{0, headerSize}, {h.metaOffset, h.auxStart()}, {h.end(), h.fileSize}}
	for i := range w.records {
		r := &w.records[i]
		owned = append(owned,
			extent{r.nameOffset, r.nameOffset + uint64(len(r.name)) + 1},
			extent{r.shapeOffset, r.shapeOffset + 8*uint64(len(r.shape))},
			extent{r.offset, r.offset + r.size})
	}
	slices.SortFunc(owned, func(a, b extent) int { return cmp.Compare(a.start, b.start) })
	done := uint64(0) // what lies before it is owned or was looked at
	for _, e := range owned {
		for ; done < e.start; done++ {
			if data[done] != 0 {
				return refuse(NonzeroPadding, "padding", "PAD-1: the byte at %d", done)
			}
		}
		done = max(done, e.end)
	}
	return nil
}

// checkBools holds BOOL-1. Aliases stand side by side, and one look is enough for all of them.
func (w *File) checkBools(data []byte) error {
	var last *record
	for _, i := range w.byData {
		r := &w.records[i]
		if r.dtype != boolean || last != nil && place(last, r) == 0 {
			continue
		}
		last = r
		for _, b := range data[r.offset : r.offset+r.size] {
			if b > 1 {
				return refuse(BadBool, fmt.Sprintf("meta[%d].data", i), "BOOL-1: %d", b)
			}
		}
	}
	return nil
}
