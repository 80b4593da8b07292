package weig

// Dtype is an element type (section 8).
type Dtype struct {
	Name string
	Size uint64 // bytes of an element
	Unit int    // how many bytes a change of byte order reverses together
}

// Their places are their codes.
var dtypes = [...]*Dtype{
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
