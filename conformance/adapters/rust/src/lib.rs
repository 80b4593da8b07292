//! A loader of WEIG, version 1, written from the specification alone.
//!
//! Ids such as `HDR-1` are the rules of the specification.

#![deny(unsafe_code)]

mod deep;
mod dtype;
mod error;
mod file;
mod storage;

pub use dtype::Dtype;
pub use error::{Code, Error, Result};
pub use file::{File, Tensor};
pub use storage::Via;

/// The byte order of a whole file (NUM-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The `u32` at `at`. The caller has checked that it is there.
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let mut raw = [0; 4];
        raw.copy_from_slice(&bytes[at..at + 4]);
        match self {
            ByteOrder::Little => u32::from_le_bytes(raw),
            ByteOrder::Big => u32::from_be_bytes(raw),
        }
    }

    /// The `u64` at `at`; copied out, so any alignment is right (SHAPE-3).
    pub(crate) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let mut raw = [0; 8];
        raw.copy_from_slice(&bytes[at..at + 8]);
        match self {
            ByteOrder::Little => u64::from_le_bytes(raw),
            ByteOrder::Big => u64::from_be_bytes(raw),
        }
    }
}
