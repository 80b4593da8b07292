//! The adapter: requests on standard input, one answer a line on standard output.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;
use std::panic::catch_unwind;

use serde::{Serialize, Serializer};
use serde_json::json;
use sha2::{Digest, Sha256};
use weig_rust::{ByteOrder, File, Tensor, Via};

/// Content longer than this is answered with its digest, also where hex was asked for.
const MAX_HEX: usize = 4096;

struct Options<'a> {
    via: Via,
    deep: bool,
    content: &'a str,
}

impl<'a> Options<'a> {
    /// Unknown keys are skipped, as the protocol says; an unknown value of a known key is not
    /// something to guess at.
    fn parse(fields: &[&'a str]) -> Result<Self, &'a str> {
        let mut options = Options { via: Via::Mmap, deep: false, content: "sha256" };
        for field in fields {
            match field.split_once('=') {
                Some(("via", "mmap")) => options.via = Via::Mmap,
                Some(("via", "read")) => options.via = Via::Read,
                Some(("level", "open")) => options.deep = false,
                Some(("level", "deep")) => options.deep = true,
                Some(("data", content @ ("sha256" | "hex" | "none"))) => options.content = content,
                Some(("via" | "level" | "data", _)) => return Err(field),
                _ => {}
            }
        }
        Ok(options)
    }
}

/// A list that is made while it is written: a tree of values for all tensors would be many times as
/// large as the line.
struct Lazy<F>(F);

impl<I: Iterator<Item: Serialize>, F: Fn() -> I> Serialize for Lazy<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// The answer to an accepted file.
#[derive(Serialize)]
struct Accepted<'a, T> {
    id: &'a str,
    status: &'a str,
    byte_order: ByteOrder,
    count: usize,
    tensors: T,
}

#[derive(Serialize)]
struct Description<'a, S> {
    name: Cow<'a, str>,
    dtype: &'a str,
    shape: S,
    nbytes: usize,
    backing: &'a str,
    align: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

/// Digests by place: many names for one tensor cost one pass over its bytes.
type Digests = HashMap<Range<*const u8>, String>;

fn describe<'a>(tensor: Tensor<'a>, options: &Options, digests: &mut Digests) -> impl Serialize + 'a {
    let bytes = tensor.bytes();
    let in_hex = options.content == "hex" && bytes.len() <= MAX_HEX;
    let data = in_hex.then(|| {
        let mut text = String::new();
        tensor.little_endian(|piece| text += &hex::encode(piece));
        text
    });
    let sha256 = (!in_hex && options.content != "none").then(|| {
        let hash = || {
            let mut hasher = Sha256::new();
            tensor.little_endian(|piece| hasher.update(piece));
            hex::encode(hasher.finalize())
        };
        digests.entry(bytes.as_ptr_range()).or_insert_with(hash).clone()
    });
    Description {
        name: tensor.name(),
        dtype: tensor.dtype().name,
        shape: Lazy(move || tensor.shape()),
        nbytes: bytes.len(),
        backing: if options.via == Via::Mmap { "mmap" } else { "copy" },
        align: 1 << bytes.as_ptr().addr().trailing_zeros().min(16),
        data,
        sha256,
    }
}

fn load(id: &str, path: &str, options: &Options) -> weig_rust::Result<String> {
    let file = File::open(path, options.via)?;
    if options.deep {
        file.verify()?;
    }
    let tensors = Lazy(|| {
        let mut digests = Digests::new();
        file.tensors().map(move |tensor| describe(tensor, options, &mut digests))
    });
    let (byte_order, count) = (file.byte_order(), file.tensors().len());
    let answer = Accepted { id, status: "accepted", byte_order, count, tensors };
    Ok(serde_json::to_string(&answer).expect("strings and numbers"))
}

fn answer(line: &str) -> String {
    let fields: Vec<&str> = line.split('\t').collect();
    let id = fields.get(1).copied().unwrap_or_default();
    let other = |status: &str, why: &str| json!({"id": id, "status": status, "message": why}).to_string();
    match fields[..] {
        ["hello", ..] => json!({
            "protocol": 1, "loader": "weig-rust", "version": env!("CARGO_PKG_VERSION"), "language": "rust",
            "spec": ["1"], "profiles": ["core", "big-endian", "deep", "mmap", "data"],
        })
        .to_string(),
        ["load", _, path, ref rest @ ..] => match Options::parse(rest) {
            // A panic would be a fault of this program; it is told, not hidden.
            Ok(options) => match catch_unwind(|| load(id, path, &options)) {
                Ok(Ok(line)) => line,
                Ok(Err(weig_rust::Error { code, field, message })) => json!({
                    "id": id, "status": "rejected", "error": code, "message": message, "field": field,
                })
                .to_string(),
                Err(_) => other("internal", "panic"),
            },
            Err(field) => other("unsupported", &format!("unknown value: {}", field.escape_default())),
        },
        _ => other("unsupported", "unknown request"),
    }
}

fn main() -> io::Result<()> {
    for line in io::stdin().lines() {
        println!("{}", answer(&line?));
        io::stdout().flush()?;
    }
    Ok(())
}
