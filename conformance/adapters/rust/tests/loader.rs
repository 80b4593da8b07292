//! The worked example of section 19, whole and with one thing wrong at a time.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use weig_rust::{ByteOrder, Code, File, Result, Via};

const LITTLE: &str = "
47 49 45 57 01 00 00 00 02 00 00 00 00 00 00 00
40 00 00 00 00 00 00 00 c0 00 00 00 00 00 00 00
10 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
b0 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00
a0 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00
c0 00 00 00 00 00 00 00 06 00 00 00 00 00 00 00
b2 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
a8 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00
00 01 00 00 00 00 00 00 08 00 00 00 00 00 00 00
03 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00
62 00 77 00 00 00 00 00 00 00 00 00 00 00 00 00
80 3f 00 40 80 bf 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 80 3f 00 00 00 c0 21 44 4e 45 47 49 45 57";

const BIG: &str = "
57 45 49 47 00 00 00 01 00 00 00 00 00 00 00 02
00 00 00 00 00 00 00 40 00 00 00 00 00 00 00 c0
00 00 00 00 00 00 01 10 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 b0 00 00 00 02 00 00 00 00
00 00 00 00 00 00 00 a0 00 00 00 00 00 00 00 01
00 00 00 00 00 00 00 c0 00 00 00 00 00 00 00 06
00 00 00 00 00 00 00 b2 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 a8 00 00 00 00 00 00 00 01
00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 08
00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 02
62 00 77 00 00 00 00 00 00 00 00 00 00 00 00 00
3f 80 40 00 bf 80 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
3f 80 00 00 c0 00 00 00 57 45 49 47 45 4e 44 21";

fn unhex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// A file that goes when the test does.
struct Temporary(PathBuf);

impl Temporary {
    fn new(bytes: &[u8]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weig-rust-{}-{number}.weig", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).unwrap();
        Temporary(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn load(bytes: &[u8]) -> Result<File> {
    let file = File::open(&Temporary::new(bytes).0, Via::Read)?;
    file.verify()?;
    Ok(file)
}

fn code_after(edit: impl FnOnce(&mut Vec<u8>)) -> Code {
    let mut bytes = unhex(LITTLE);
    edit(&mut bytes);
    load(&bytes).expect_err("must be refused").code
}

fn canonical(file: &File, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let tensor = file.tensor(name).unwrap();
    tensor.little_endian(|piece| bytes.extend(piece));
    bytes
}

#[test]
fn worked_example_in_both_orders_and_both_ways() {
    for (text, order) in [(LITTLE, ByteOrder::Little), (BIG, ByteOrder::Big)] {
        let path = Temporary::new(&unhex(text));
        for via in [Via::Mmap, Via::Read] {
            let file = File::open(&path.0, via).unwrap();
            file.verify().unwrap();
            assert_eq!(file.byte_order(), order);
            let seen: Vec<_> =
                file.tensors().map(|t| (t.name(), t.dtype().name, t.shape().collect::<Vec<_>>())).collect();
            assert_eq!(seen[0], ("b".into(), "BF16", vec![3]));
            assert_eq!(seen[1], ("w".into(), "F32", vec![2]));
            assert_eq!(seen.len(), 2);
            assert_eq!(canonical(&file, "b"), unhex("80 3f 00 40 80 bf"));
            assert_eq!(canonical(&file, "w"), unhex("00 00 80 3f 00 00 00 c0"));
            assert_eq!(file.tensor("x").unwrap_err().code, Code::NoSuchTensor);
        }
    }
}

#[test]
fn one_wrong_thing_at_a_time() {
    assert_eq!(code_after(|b| b.truncate(71)), Code::TooSmall);
    assert_eq!(code_after(|b| b.truncate(264)), Code::Truncated);
    assert_eq!(code_after(|b| b.push(0)), Code::TrailingData);
    assert_eq!(code_after(|b| b[..4].copy_from_slice(b"GGUF")), Code::BadMagic);
    assert_eq!(code_after(|b| b[4] = 2), Code::BadVersion);
    assert_eq!(code_after(|b| b[15] = 1), Code::NumberTooLarge);
    assert_eq!(code_after(|b| b[8] = 3), Code::BadMetaTable);
    assert_eq!(code_after(|b| b[43] = 1), Code::UnknownFlag);
    assert_eq!(code_after(|b| b[63] = 1), Code::BadReserved);
    assert_eq!(code_after(|b| b[24] = 0xc8), Code::Misaligned);
    assert_eq!(code_after(|b| b[72] = 19), Code::BadDtype);
    assert_eq!(code_after(|b| b[176] = 0xff), Code::BadName);
    assert_eq!(code_after(|b| b[178] = b'b'), Code::DuplicateName);
    assert_eq!(code_after(|b| b[88] = 65), Code::BadShape);
    assert_eq!(code_after(|b| b[104] = 7), Code::BadDataSize);
    assert_eq!(code_after(|b| b[145] = 2), Code::BadDataRange);
    assert_eq!(code_after(|b| b[271] = 0), Code::BadSentinel);
    assert_eq!(code_after(|b| b[199] = 1), Code::NonzeroPadding);
    let overlap = |b: &mut Vec<u8>| b[144..146].copy_from_slice(&[0xc0, 0]);
    assert_eq!(code_after(overlap), Code::Overlap);
    let huge = |b: &mut Vec<u8>| b[160..168].copy_from_slice(&((1u64 << 53) - 1).to_le_bytes());
    assert_eq!(code_after(huge), Code::BadShape);
}

#[test]
fn upper_flags_are_ignored() {
    let mut bytes = unhex(LITTLE);
    bytes[44] = 1;
    load(&bytes).unwrap();
}

#[test]
fn what_is_not_a_regular_file() {
    for path in ["/", "/dev/null"] {
        let error = File::open(path, Via::Mmap).unwrap_err();
        assert_eq!(error.code, Code::NotRegularFile);
    }
    let error = File::open("/no/such/file", Via::Mmap).unwrap_err();
    assert_eq!(error.code, Code::Io);
}

#[test]
fn a_change_is_noticed_and_a_copy_stays() {
    let path = Temporary::new(&unhex(LITTLE));
    let file = File::open(&path.0, Via::Read).unwrap();
    file.check_unmodified().unwrap();
    let mut again = std::fs::OpenOptions::new().write(true).truncate(true).open(&path.0).unwrap();
    again.write_all(b"short").unwrap();
    assert_eq!(file.check_unmodified().unwrap_err().code, Code::Modified);
    assert_eq!(canonical(&file, "b"), unhex("80 3f 00 40 80 bf"));
}
