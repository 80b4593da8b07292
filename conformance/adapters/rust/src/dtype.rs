//! The table of section 8.

/// An element type; its code is its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dtype(usize);

/// Name, bytes of an element, unit.
const TABLE: [(&str, u64, usize); 19] = [
    ("F32", 4, 4),
    ("F16", 2, 2),
    ("BF16", 2, 2),
    ("I8", 1, 1),
    ("U8", 1, 1),
    ("I32", 4, 4),
    ("F64", 8, 8),
    ("I64", 8, 8),
    ("I16", 2, 2),
    ("U16", 2, 2),
    ("U32", 4, 4),
    ("U64", 8, 8),
    ("BOOL", 1, 1),
    ("F8_E4M3", 1, 1),
    ("F8_E5M2", 1, 1),
    ("F8_E8M0", 1, 1),
    ("C64", 8, 4),
    ("F8_E4M3FNUZ", 1, 1),
    ("F8_E5M2FNUZ", 1, 1),
];

impl Dtype {
    pub const BOOL: Dtype = Dtype(12);

    /// DTYPE-1: only the codes of the table.
    pub fn from_code(code: u32) -> Option<Dtype> {
        usize::try_from(code).ok().filter(|&code| code < TABLE.len()).map(Dtype)
    }

    pub fn all() -> impl Iterator<Item = Dtype> {
        (0..TABLE.len()).map(Dtype)
    }

    pub fn name(self) -> &'static str {
        TABLE[self.0].0
    }

    /// Bytes of an element.
    pub fn size(self) -> u64 {
        TABLE[self.0].1
    }

    /// How many bytes a change of byte order reverses together.
    pub fn unit(self) -> usize {
        TABLE[self.0].2
    }
}
