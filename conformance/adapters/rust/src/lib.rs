//! A loader of WEIG, version 1, written from the specification alone.
//!
//! Ids such as `HDR-1` are the rules of the specification.

#![deny(unsafe_code)]

mod check;
mod dtype;
mod error;
mod file;

pub use check::ByteOrder;
pub use dtype::Dtype;
pub use error::{Code, Error, Result};
pub use file::{File, Tensor, Via};
