//! The adapter: requests on standard input, one answer a line on standard output.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};

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

fn describe<'a>(tensor: Tensor<'a>, via: Via, content: &str, digests: &mut Digests) -> impl Serialize + 'a {
    let bytes = tensor.bytes();
    let in_hex = content == "hex" && bytes.len() <= MAX_HEX;
    let data = in_hex.then(|| {
        let mut text = String::new();
        tensor.little_endian(|piece| text += &hex::encode(piece));
        text
    });
    let sha256 = (!in_hex && content != "none").then(|| {
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
        backing: if via == Via::Mmap { "mmap" } else { "copy" },
        align: 1 << bytes.as_ptr().addr().trailing_zeros().min(16),
        data,
        sha256,
    }
}

fn accepted(id: &str, file: &File, via: Via, content: &str) -> String {
    let tensors = Lazy(|| {
        let mut digests = Digests::new();
        file.tensors().map(move |tensor| describe(tensor, via, content, &mut digests))
    });
    let (byte_order, count) = (file.byte_order(), file.tensors().len());
    let answer = Accepted { id, status: "accepted", byte_order, count, tensors };
    serde_json::to_string(&answer).expect("strings and numbers")
}

fn other(id: &str, status: &str, why: &str) -> String {
    json!({"id": id, "status": status, "message": why}).to_string()
}

/// What the last `open` left open, and how it was opened.
type Held = Option<(File, Via)>;

/// Answers a request about a file.
fn serve(id: &str, fields: &[&str], options: &Options, held: &mut Held) -> weig_rust::Result<String> {
    match (fields, held) {
        (&[verb @ ("load" | "open"), _, path, ..], held) => {
            *held = None;
            let file = File::open(path, options.via)?;
            if options.deep {
                file.verify()?;
            }
            let answer = accepted(id, &file, options.via, options.content);
            *held = (verb == "open").then_some((file, options.via));
            Ok(answer)
        }
        (&["check", ..], Some((file, _))) => {
            file.check_unmodified()?;
            Ok(other(id, "unmodified", "as it was opened"))
        }
        (&["access", ..], Some((file, via))) => Ok(accepted(id, file, *via, options.content)),
        (_, _) => Ok(other(id, "unsupported", "unknown request")),
    }
}

fn answer(line: &str, held: &mut Held) -> String {
    let fields: Vec<&str> = line.split('\t').collect();
    let id = fields.get(1).copied().unwrap_or_default();
    if fields[0] == "hello" {
        return json!({
            "protocol": 1, "loader": "weig-rust", "version": env!("CARGO_PKG_VERSION"), "language": "rust",
            "spec": ["1"],
            "profiles": ["core", "big-endian", "deep", "mmap", "data", "held-mmap", "held-read"],
        })
        .to_string();
    }
    // A path, which begins with a slash, is no key that is known.
    match Options::parse(fields.get(2..).unwrap_or_default()) {
        // A panic would be a fault of this program; it is told, not hidden.
        Ok(options) => match catch_unwind(AssertUnwindSafe(|| serve(id, &fields, &options, held))) {
            Ok(Ok(line)) => line,
            Ok(Err(weig_rust::Error { code, field, message })) => json!({
                "id": id, "status": "rejected", "error": code, "message": message, "field": field,
            })
            .to_string(),
            Err(_) => other(id, "internal", "panic"),
        },
        Err(field) => other(id, "unsupported", &format!("unknown value: {}", field.escape_default())),
    }
}

fn main() -> io::Result<()> {
    let mut held = None;
    for line in io::stdin().lines() {
        println!("{}", answer(&line?, &mut held));
        io::stdout().flush()?;
    }
    Ok(())
}
