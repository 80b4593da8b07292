//! The closed list of error codes (section 14), and the error that carries one.

use std::fmt::{self, Display};
use std::io::{self, ErrorKind};

pub type Result<T> = std::result::Result<T, Error>;

macro_rules! codes {
    ($($variant:ident = $text:literal,)*) => {
        /// The codes that this loader can give. `CLOSED` is missing: a file is closed by dropping
        /// it, and the compiler refuses a program that uses it afterwards.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code { $($variant,)* }

        impl Code {
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)* }
            }
        }
    };
}

codes! {
    Io = "IO",
    NotRegularFile = "NOT_REGULAR_FILE",
    TooLarge = "TOO_LARGE",
    TooSmall = "TOO_SMALL",
    BadMagic = "BAD_MAGIC",
    BadVersion = "BAD_VERSION",
    UnknownFlag = "UNKNOWN_FLAG",
    BadReserved = "BAD_RESERVED",
    Truncated = "TRUNCATED",
    TrailingData = "TRAILING_DATA",
    BadFileSize = "BAD_FILE_SIZE",
    BadSentinel = "BAD_SENTINEL",
    BadMetaTable = "BAD_META_TABLE",
    BadDataRegion = "BAD_DATA_REGION",
    Misaligned = "MISALIGNED",
    BadDtype = "BAD_DTYPE",
    BadName = "BAD_NAME",
    DuplicateName = "DUPLICATE_NAME",
    BadShape = "BAD_SHAPE",
    BadDataSize = "BAD_DATA_SIZE",
    BadDataRange = "BAD_DATA_RANGE",
    Overlap = "OVERLAP",
    NumberTooLarge = "NUMBER_TOO_LARGE",
    NonzeroPadding = "NONZERO_PADDING",
    BadBool = "BAD_BOOL",
    Modified = "MODIFIED",
    NoSuchTensor = "NO_SUCH_TENSOR",
}

/// A refusal. Text from the file stands in `message` escaped, never raw (OPEN-13).
#[derive(Clone, Debug)]
pub struct Error {
    pub code: Code,
    /// The field that broke the rule, as the specification writes it; empty where there is none.
    pub field: String,
    pub message: String,
}

impl Error {
    /// The same error, its field placed in record `index`.
    pub(crate) fn in_record(mut self, index: usize) -> Self {
        self.field = format!("meta[{index}].{}", self.field);
        self
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.code.as_str(), self.message, self.field)
    }
}

impl std::error::Error for Error {}

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
pub(crate) fn refusal(code: Code, rule: &str, field: &str, found: impl Display) -> Error {
    Error { code, field: field.to_owned(), message: format!("breaks {rule}: {found}") }
}

/// One check of one rule. The message is made only where it fails.
pub(crate) fn ensure(ok: bool, code: Code, rule: &str, field: &str, found: impl Display) -> Result<()> {
    match ok {
        true => Ok(()),
        false => Err(refusal(code, rule, field, found)),
    }
}
