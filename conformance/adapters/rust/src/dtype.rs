//! The table of section 8.

/// An element type.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dtype {
    pub name: &'static str,
    /// Bytes of an element.
    pub size: u64,
    /// How many bytes a change of byte order reverses together.
    pub unit: usize,
}

const fn dtype(name: &'static str, size: u64, unit: usize) -> Dtype {
    Dtype { name, size, unit }
}

/// Their places are their codes.
pub(crate) static DTYPES: [Dtype; 19] = [
    dtype("F32", 4, 4),
    dtype("F16", 2, 2),
    dtype("BF16", 2, 2),
    dtype("I8", 1, 1),
    dtype("U8", 1, 1),
    dtype("I32", 4, 4),
    dtype("F64", 8, 8),
    dtype("I64", 8, 8),
    dtype("I16", 2, 2),
    dtype("U16", 2, 2),
    dtype("U32", 4, 4),
    dtype("U64", 8, 8),
    dtype("BOOL", 1, 1),
    dtype("F8_E4M3", 1, 1),
    dtype("F8_E5M2", 1, 1),
    dtype("F8_E8M0", 1, 1),
    dtype("C64", 8, 4),
    dtype("F8_E4M3FNUZ", 1, 1),
    dtype("F8_E5M2FNUZ", 1, 1),
];
