package weig

// Dtype is an element type; its value is the code of section 8.
type Dtype uint32

const boolean Dtype = 12

var dtypes = [...]struct {
	name       string
	size, unit uint64
}{
	0:  {"F32", 4, 4},
	1:  {"F16", 2, 2},
	2:  {"BF16", 2, 2},
	3:  {"I8", 1, 1},
	4:  {"U8", 1, 1},
	5:  {"I32", 4, 4},
	6:  {"F64", 8, 8},
	7:  {"I64", 8, 8},
	8:  {"I16", 2, 2},
	9:  {"U16", 2, 2},
	10: {"U32", 4, 4},
	11: {"U64", 8, 8},
	12: {"BOOL", 1, 1},
	13: {"F8_E4M3", 1, 1},
	14: {"F8_E5M2", 1, 1},
	15: {"F8_E8M0", 1, 1},
	16: {"C64", 8, 4},
	17: {"F8_E4M3FNUZ", 1, 1},
	18: {"F8_E5M2FNUZ", 1, 1},
}

func (d Dtype) known() bool { return uint64(d) < uint64(len(dtypes)) }

// String returns the name of d.
func (d Dtype) String() string { return dtypes[d].name }

// Size returns the number of bytes of an element.
func (d Dtype) Size() uint64 { return dtypes[d].size }

// Unit returns how many bytes a change of byte order reverses together.
func (d Dtype) Unit() int { return int(dtypes[d].unit) }

// Dtypes returns the names of all element types.
func Dtypes() []string {
	var names []string
	for _, d := range dtypes {
		names = append(names, d.name)
	}
	return names
}
