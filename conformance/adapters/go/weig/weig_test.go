package weig

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The worked example of section 19.

const littleExample = `
47 49 45 57 01 00 00 00 02 00 00 00 00 00 00 00
40 00 00 00 00 00 00 00 c0 00 00 00 00 00 00 00
10 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
b0 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00
a0 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00
c0 00 00 00 00 00 00 00 06 00 00 00 00 00 00 00
b2 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
a8 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00
00 01 00 00 00 00 00 00 08 00 00 00 00 00 00 00
03 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00
62 00 77 00 00 00 00 00 00 00 00 00 00 00 00 00
80 3f 00 40 80 bf 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 80 3f 00 00 00 c0 21 44 4e 45 47 49 45 57`

const bigExample = `
57 45 49 47 00 00 00 01 00 00 00 00 00 00 00 02
00 00 00 00 00 00 00 40 00 00 00 00 00 00 00 c0
00 00 00 00 00 00 01 10 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 b0 00 00 00 02 00 00 00 00
00 00 00 00 00 00 00 a0 00 00 00 00 00 00 00 01
00 00 00 00 00 00 00 c0 00 00 00 00 00 00 00 06
00 00 00 00 00 00 00 b2 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 a8 00 00 00 00 00 00 00 01
00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 08
00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 02
62 00 77 00 00 00 00 00 00 00 00 00 00 00 00 00
3f 80 40 00 bf 80 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
3f 80 00 00 c0 00 00 00 57 45 49 47 45 4e 44 21`

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.weig")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func code(err error) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func canonical(t *testing.T, f *File, name string) string {
	t.Helper()
	tensor, err := f.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tensor.WriteLittleEndian(&b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b.Bytes())
}

func TestWorkedExample(t *testing.T) {
	for _, c := range []struct {
		name, text string
		order      binary.ByteOrder
		mode       Mode
	}{
		{"little mmap", littleExample, binary.LittleEndian, Mmap},
		{"little read", littleExample, binary.LittleEndian, Read},
		{"big mmap", bigExample, binary.BigEndian, Mmap},
		{"big read", bigExample, binary.BigEndian, Read},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Open(write(t, unhex(t, c.text)), c.mode)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Verify(); err != nil {
				t.Error(err)
			}
			if f.Order != c.order || len(f.Tensors) != 2 {
				t.Fatalf("%v, %d tensors", f.Order, len(f.Tensors))
			}
			b := f.Tensors[0]
			if b.Name != "b" || b.Dtype.Name != "BF16" || !slices.Equal(b.Shape, []uint64{3}) {
				t.Errorf("%q %v %v", b.Name, b.Dtype, b.Shape)
			}
			if got := canonical(t, f, "b"); got != "803f004080bf" {
				t.Errorf("b is %s", got)
			}
			if got := canonical(t, f, "w"); got != "0000803f000000c0" {
				t.Errorf("w is %s", got)
			}
			if _, err := f.Lookup("x"); code(err) != "NO_SUCH_TENSOR" {
				t.Error(err)
			}
		})
	}
}

func TestOneWrongThing(t *testing.T) {
	at := func(i int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[i:], v); return b }
	}
	for _, c := range []struct {
		want string
		edit func([]byte) []byte
	}{
		{"TOO_SMALL", func(b []byte) []byte { return b[:71] }},
		{"TRUNCATED", func(b []byte) []byte { return b[:264] }},
		{"TRAILING_DATA", func(b []byte) []byte { return append(b, 0) }},
		{"BAD_MAGIC", at(0, []byte("GGUF")...)},
		{"BAD_VERSION", at(4, 2)},
		{"NUMBER_TOO_LARGE", at(15, 1)},
		{"BAD_META_TABLE", at(8, 3)},
		{"UNKNOWN_FLAG", at(43, 1)},
		{"BAD_RESERVED", at(63, 1)},
		{"BAD_RESERVED", at(76, 1)},
		{"MISALIGNED", at(24, 0xc8)},
		{"BAD_DTYPE", at(72, 19)},
		{"BAD_NAME", at(176, 0xff)},
		{"BAD_NAME", at(176, 0x7f)},
		{"BAD_NAME", at(176, 0)},
		{"DUPLICATE_NAME", at(178, 'b')},
		{"BAD_SHAPE", at(88, 65)},
		{"BAD_SHAPE", at(160, 255, 255, 255, 255, 255, 255, 31)},
		{"BAD_DATA_SIZE", at(104, 7)},
		{"BAD_DATA_RANGE", at(145, 2)},
		{"OVERLAP", at(144, 0xc0, 0)},
		{"BAD_SENTINEL", at(271, 0)},
		{"NONZERO_PADDING", at(199, 1)},
		{"", at(44, 1)},
	} {
		path := write(t, c.edit(unhex(t, littleExample)))
		f, err := Open(path, Read)
		if err == nil {
			err = f.Verify()
		}
		if got := code(err); got != c.want {
			t.Errorf("%s, want %s: %v", got, c.want, err)
		}
	}
}

func TestNotRegular(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/dev/null", fifo} {
		if _, err := Open(path, Mmap); code(err) != "NOT_REGULAR_FILE" {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), Mmap); code(err) != "IO" {
		t.Error(err)
	}
}

func TestClosedModifiedAndCut(t *testing.T) {
	path := write(t, unhex(t, littleExample))
	mapped, err := Open(path, Mmap)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := Open(path, Read)
	if err != nil {
		t.Fatal(err)
	}
	if err := mapped.CheckUnmodified(); err != nil {
		t.Error(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := mapped.CheckUnmodified(); code(err) != "MODIFIED" {
		t.Error(err)
	}
	if got := canonical(t, copied, "b"); got != "803f004080bf" {
		t.Errorf("b is %s", got)
	}
	// A page of the map is gone: an error here, and not the end of the process.
	tensor, err := mapped.Lookup("b")
	if err != nil {
		t.Fatal(err)
	}
	if err := tensor.WriteLittleEndian(&bytes.Buffer{}); code(err) != "TRUNCATED" {
		t.Error(err)
	}
	if err := mapped.Close(); err != nil {
		t.Error(err)
	}
	if err := tensor.WriteLittleEndian(&bytes.Buffer{}); code(err) != "CLOSED" {
		t.Error(err)
	}
	if err := mapped.Verify(); code(err) != "CLOSED" {
		t.Error(err)
	}
}
