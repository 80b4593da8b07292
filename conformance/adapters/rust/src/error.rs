//! The closed list of error codes (section 14), and the error that carries one.

use std::fmt::Display;
use std::io::{self, ErrorKind};

use serde::Serialize;

pub type Result<T> = std::result::Result<T, Error>;

/// The codes that this loader can give. `CLOSED` is missing: a file is closed by dropping it, and
/// the compiler refuses a program that uses it afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    Io,
    NotRegularFile,
    TooLarge,
    TooSmall,
    BadMagic,
    BadVersion,
    UnknownFlag,
    BadReserved,
    Truncated,
    TrailingData,
    BadFileSize,
    BadSentinel,
    BadMetaTable,
    BadDataRegion,
    Misaligned,
    BadDtype,
    BadName,
    DuplicateName,
    BadShape,
    BadDataSize,
    BadDataRange,
    Overlap,
    NumberTooLarge,
    NonzeroPadding,
    BadBool,
    Modified,
    NoSuchTensor,
}

/// A refusal. Text from the file stands in `message` escaped, never raw (OPEN-13).
#[derive(Clone, Debug, thiserror::Error)]
#[error("{code:?}: {message} ({field})")]
pub struct Error {
    pub code: Code,
    /// The field that broke the rule, as the specification writes it; empty where there is none.
    pub field: String,
    pub message: String,
}

impl From<io::Error> for Error {
    /// OPEN-11: a file that ends early is TRUNCATED, other refusals are IO. A lack of address
    /// space or memory is TOO_LARGE (OPEN-9).
    fn from(error: io::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::UnexpectedEof => Code::Truncated,
            ErrorKind::OutOfMemory => Code::TooLarge,
            _ => Code::Io,
        };
        Error { code, field: String::new(), message: error.to_string() }
    }
}

/// A refusal that names its rule and what was `found`: a number, or text that is escaped already.
pub fn refusal(code: Code, rule: &str, field: impl Display, found: impl Display) -> Error {
    Error { code, field: field.to_string(), message: format!("breaks {rule}: {found}") }
}

/// One check of one rule. Field and message are written out only where it fails.
pub fn ensure(ok: bool, code: Code, rule: &str, field: impl Display, found: impl Display) -> Result<()> {
    ok.then_some(()).ok_or_else(|| refusal(code, rule, field, found))
}
