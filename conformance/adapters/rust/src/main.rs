//! The adapter: requests on standard input, one answer a line on standard output.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;

use serde_json::{json, Map, Value};
use sha2::{Digest, Sha256};
use weig_rust::{ByteOrder, Dtype, File, Tensor, Via};

/// Content longer than this is answered with its digest, also where hex was asked for.
const MAX_HEX: usize = 4096;

#[derive(Clone, Copy, PartialEq)]
enum Content {
    Sha256,
    Hex,
    None,
}

struct Options {
    via: Via,
    deep: bool,
    content: Content,
}

impl Options {
    /// Unknown keys are skipped, as the protocol says; an unknown value of a known key is not
    /// something to guess at.
    fn parse<'a>(fields: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut options = Options { via: Via::Mmap, deep: false, content: Content::Sha256 };
        for field in fields {
            match field.split_once('=') {
                Some(("via", "mmap")) => options.via = Via::Mmap,
                Some(("via", "read")) => options.via = Via::Read,
                Some(("level", "open")) => options.deep = false,
                Some(("level", "deep")) => options.deep = true,
                Some(("data", "sha256")) => options.content = Content::Sha256,
                Some(("data", "hex")) => options.content = Content::Hex,
                Some(("data", "none")) => options.content = Content::None,
                Some(("via" | "level" | "data", _)) => return Err(field.to_owned()),
                _ => {}
            }
        }
        Ok(options)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Digests by place and dtype: many names for one tensor cost one pass over its bytes.
type Digests = HashMap<(u64, usize, Dtype), String>;

fn describe(tensor: Tensor<'_>, via: Via, content: Content, digests: &mut Digests) -> Value {
    let bytes = tensor.bytes();
    let mut entry = Map::new();
    entry.insert("name".into(), json!(tensor.name()));
    entry.insert("dtype".into(), json!(tensor.dtype().name()));
    entry.insert("shape".into(), tensor.shape().collect());
    entry.insert("nbytes".into(), json!(bytes.len()));
    let backing = match via {
        Via::Mmap => "mmap",
        Via::Read => "copy",
    };
    entry.insert("backing".into(), json!(backing));
    let align = 1u32 << bytes.as_ptr().addr().trailing_zeros().min(16);
    entry.insert("align".into(), json!(align));
    if content == Content::Hex && bytes.len() <= MAX_HEX {
        let mut text = String::new();
        tensor.little_endian(|piece| text += &hex(piece));
        entry.insert("data".into(), json!(text));
    } else if content != Content::None {
        let key = (tensor.offset(), bytes.len(), tensor.dtype());
        let digest = digests.entry(key).or_insert_with(|| {
            let mut hasher = Sha256::new();
            tensor.little_endian(|piece| hasher.update(piece));
            hex(&hasher.finalize())
        });
        entry.insert("sha256".into(), json!(digest));
    }
    Value::Object(entry)
}

fn load(id: &str, path: &OsStr, options: &Options) -> Vec<u8> {
    let opened = File::open(path, options.via).and_then(|file| {
        if options.deep {
            file.verify()?;
        }
        Ok(file)
    });
    let file = match opened {
        Ok(file) => file,
        Err(error) => {
            let (code, message) = (error.code.as_str(), error.message);
            let refusal = json!({
                "id": id, "status": "rejected", "error": code, "message": message, "field": error.field,
            });
            return refusal.to_string().into_bytes();
        }
    };
    let order = match file.byte_order() {
        ByteOrder::Little => "little",
        ByteOrder::Big => "big",
    };
    let head = json!({"id": id, "status": "accepted", "byte_order": order, "count": file.len()}).to_string();
    // Tensor by tensor: a tree of values for all of them would be many times as large as the line.
    let mut line = head.trim_end_matches('}').as_bytes().to_vec();
    line.extend(b",\"tensors\":");
    let mut digests = Digests::new();
    for (index, tensor) in file.tensors().enumerate() {
        line.push(if index == 0 { b'[' } else { b',' });
        line.extend(describe(tensor, file.via(), options.content, &mut digests).to_string().bytes());
    }
    line.extend(if file.is_empty() { &b"[]}"[..] } else { &b"]}"[..] });
    line
}

fn hello() -> Value {
    let dtypes: Vec<_> = Dtype::all().map(Dtype::name).collect();
    json!({
        "protocol": 1, "loader": "weig-rust", "version": env!("CARGO_PKG_VERSION"),
        "language": "rust", "spec": ["1"],
        "profiles": ["core", "big-endian", "deep", "mmap", "data"], "dtypes": dtypes,
    })
}

fn answer(line: &[u8]) -> Vec<u8> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b'\t').collect();
    let id = String::from_utf8_lossy(fields.get(1).copied().unwrap_or_default());
    let other = |status: &str, why: &str| json!({"id": &*id, "status": status, "message": why}).to_string();
    let text = match fields[..] {
        [b"hello", ..] => hello().to_string(),
        [b"load", _, path, ref rest @ ..] => {
            match Options::parse(rest.iter().filter_map(|field| std::str::from_utf8(field).ok())) {
                // A panic would be a fault of this program; it is told, not hidden.
                Ok(options) => match catch_unwind(|| load(&id, OsStr::from_bytes(path), &options)) {
                    Ok(line) => return line,
                    Err(_) => other("internal", "panic"),
                },
                Err(field) => other("unsupported", &format!("unknown value: {}", field.escape_default())),
            }
        }
        _ => other("unsupported", "unknown request"),
    };
    text.into_bytes()
}

fn main() -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        let mut reply = answer(line.strip_suffix(b"\n").unwrap_or(&line));
        reply.push(b'\n');
        output.write_all(&reply)?;
        output.flush()?;
        line.clear();
    }
    Ok(())
}
