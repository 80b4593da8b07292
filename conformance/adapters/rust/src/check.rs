//! The rules of the format, in the order of the specification.

use std::ffi::CStr;

use serde::Serialize;

use crate::dtype::{Dtype, DTYPES};
use crate::error::{ensure, refusal, Code::*, Error, Result};

/// NUM-2: the largest count, offset, size or dimension.
const MAX_NUMBER: u64 = (1 << 53) - 1;
const SENTINEL: u64 = 0x5745_4947_454E_4421;
const RECORD: u64 = 48;
/// NAME-3 with the NUL: where the search for it ends.
const MAX_NAME: u64 = 1024;

/// The byte order of a whole file (NUM-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The unsigned number that is all of `bytes`, at any alignment (SHAPE-3).
    fn number(self, bytes: &[u8]) -> u64 {
        let append = |value, &byte| value << 8 | u64::from(byte);
        match self {
            ByteOrder::Little => bytes.iter().rev().fold(0, append),
            ByteOrder::Big => bytes.iter().fold(0, append),
        }
    }

    pub(crate) fn dimensions(self, array: &[u8]) -> impl Iterator<Item = u64> + '_ {
        array.chunks_exact(8).map(move |dim| self.number(dim))
    }
}

/// A range of bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub start: u64,
    pub size: u64,
}

impl Span {
    pub fn end(self) -> u64 {
        self.start + self.size
    }

    /// Whether it lies in the bytes from `from` up to `to`, in the form that cannot wrap.
    fn lies_in(self, from: u64, to: u64) -> bool {
        from <= self.start && self.start <= to && self.size <= to - self.start
    }

    /// The bytes themselves, of a range that has been checked to lie in the file; all of that is
    /// in memory, so its numbers fit a `usize`.
    pub fn of(self, data: &[u8]) -> &[u8] {
        &data[self.start as usize..self.end() as usize]
    }
}

/// What a header says, once it was checked. The aux area lies between the two.
#[derive(Debug)]
pub(crate) struct Header {
    pub order: ByteOrder,
    table: Span,
    region: Span,
}

/// What a record says, once it was checked. Names and dimensions stay where they lie: records may
/// share them, and copies could be many times as large as the file.
#[derive(Debug)]
pub(crate) struct Record {
    /// Without the NUL.
    pub name: Span,
    pub dtype: &'static Dtype,
    pub shape: Span,
    pub data: Span,
}

/// NUM-2.
fn limited(value: u64, field: &str) -> Result<u64> {
    ensure(value <= MAX_NUMBER, NumberTooLarge, "NUM-2", field, value)?;
    Ok(value)
}

/// HDR-2. What a file is instead helps the person who took the wrong one.
fn byte_order(head: &[u8; 64]) -> Result<ByteOrder> {
    let other = match head.as_slice() {
        [0x47, 0x49, 0x45, 0x57, ..] => return Ok(ByteOrder::Little),
        [0x57, 0x45, 0x49, 0x47, ..] => return Ok(ByteOrder::Big),
        h if h.starts_with(b"version https://git-lfs") => "a git-LFS pointer",
        [b'<', ..] => "HTML, or the like",
        [b'P', b'K', 3, 4, ..] => "ZIP",
        [b'G', b'G', b'U', b'F', ..] => "GGUF",
        [0x1f, 0x8b, ..] => "gzip",
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => "npy",
        [_, _, _, _, _, _, _, _, b'{', ..] => "perhaps safetensors",
        _ => "no known format",
    };
    Err(refusal(BadMagic, "HDR-2", "header.magic", other))
}

/// Holds sections 3 to 6 and 11 against both ends of the file and its real size.
pub(crate) fn header(head: &[u8; 64], tail: &[u8; 8], real_size: u64) -> Result<Header> {
    let order = byte_order(head)?;
    let version = order.number(&head[4..8]);
    ensure(version == 1, BadVersion, "HDR-3", "header.version", version)?;
    let count = limited(order.number(&head[8..16]), "header.tensor_count")?;
    let meta_offset = limited(order.number(&head[16..24]), "header.meta_offset")?;
    let data_offset = limited(order.number(&head[24..32]), "header.data_offset")?;
    let size = limited(order.number(&head[32..40]), "header.file_size")?;
    let flags = order.number(&head[40..48]);
    ensure(size.is_multiple_of(8) && size >= 72, BadFileSize, "HDR-4", "header.file_size", size)?;
    ensure(real_size >= size, Truncated, "HDR-5", "header.file_size", real_size)?;
    ensure(real_size <= size, TrailingData, "HDR-6", "header.file_size", real_size)?;
    ensure(flags & 0xFFFF_FFFF == 0, UnknownFlag, "HDR-7", "header.flags", flags)?;
    ensure(head[48..] == [0; 16], BadReserved, "HDR-8", "header.reserved", "not zero")?;
    ensure(meta_offset >= 64, BadMetaTable, "META-1", "header.meta_offset", meta_offset)?;
    ensure(meta_offset.is_multiple_of(8), BadMetaTable, "META-2", "header.meta_offset", meta_offset)?;
    let table = Span { start: meta_offset, size: RECORD * count };
    ensure(table.lies_in(64, data_offset), BadMetaTable, "META-3", "header.tensor_count", count)?;
    ensure(data_offset.is_multiple_of(64), Misaligned, "REGION-1", "header.data_offset", data_offset)?;
    let end = size - 8; // at least 64, by HDR-4
    ensure(data_offset <= end, BadDataRegion, "REGION-2", "header.data_offset", data_offset)?;
    let sentinel = order.number(tail);
    ensure(sentinel == SENTINEL, BadSentinel, "TAIL-1", "sentinel", sentinel)?;
    Ok(Header { order, table, region: Span { start: data_offset, size: end - data_offset } })
}

/// Holds sections 3, 5 and 7 to 10 against all records. The table lies in the file (META-3,
/// REGION-2), so its size may size memory (OPEN-4).
pub(crate) fn records(h: &Header, data: &[u8]) -> Result<Vec<Record>> {
    let table = h.table.of(data).chunks_exact(RECORD as usize).enumerate();
    let in_record = |index, error: Error| Error { field: format!("meta[{index}].{}", error.field), ..error };
    table.map(|(index, raw)| record(raw, h, data).map_err(|error| in_record(index, error))).collect()
}

/// One record; fields are named without it.
fn record(raw: &[u8], h: &Header, data: &[u8]) -> Result<Record> {
    let (aux_start, aux_end) = (h.table.end(), h.region.start);
    let number = |at: usize, field| limited(h.order.number(&raw[at..at + 8]), field);
    let name = number(0, "name_offset")?;
    let (code, pad) = (h.order.number(&raw[8..12]), h.order.number(&raw[12..16]));
    let (shape, rank) = (number(16, "shape_offset")?, number(24, "shape_count")?);
    let place = Span { start: number(32, "data_offset")?, size: number(40, "data_size")? };
    ensure(pad == 0, BadReserved, "META-4", "pad", pad)?;
    let dtype = DTYPES.get(code as usize).ok_or_else(|| refusal(BadDtype, "DTYPE-1", "dtype", code))?;

    ensure((aux_start..aux_end).contains(&name), BadName, "NAME-1", "name_offset", name)?;
    // Never further than 1024 bytes, so that names that share storage cannot make this slow.
    let window = Span { start: name, size: MAX_NAME.min(aux_end - name) }.of(data);
    let text = CStr::from_bytes_until_nul(window).map(CStr::to_bytes);
    let text = text.map_err(|_| refusal(BadName, "NAME-2 or NAME-3", "name_offset", name))?;
    ensure(!text.is_empty(), BadName, "NAME-3", "name_offset", "an empty name")?;
    ensure(str::from_utf8(text).is_ok(), BadName, "NAME-4", "name_offset", text.escape_ascii())?;
    let control = text.iter().any(u8::is_ascii_control);
    ensure(!control, BadName, "NAME-5", "name_offset", text.escape_ascii())?;

    ensure(rank <= 64, BadShape, "SHAPE-1", "shape_count", rank)?;
    let shape = Span { start: shape, size: 8 * rank };
    ensure(shape.lies_in(aux_start, aux_end), BadShape, "SHAPE-2", "shape_offset", shape.start)?;
    let (mut size, mut empty) = (dtype.size, false);
    for dim in h.order.dimensions(shape.of(data)) {
        limited(dim, "shape")?;
        empty |= dim == 0;
        // Zeros stay out of the product, wherever they stand.
        let product = size.checked_mul(dim.max(1)).filter(|&size| size <= MAX_NUMBER);
        size = product.ok_or_else(|| refusal(BadShape, "SHAPE-4", "shape", dim))?;
    }
    let size = if empty { 0 } else { size };
    ensure(place.size == size, BadDataSize, "SHAPE-5", "data_size", place.size)?;

    ensure(place.start.is_multiple_of(64), Misaligned, "DATA-1", "data_offset", place.start)?;
    ensure(place.start >= aux_end, BadDataRange, "DATA-2", "data_offset", place.start)?;
    ensure(place.lies_in(aux_end, h.region.end()), BadDataRange, "DATA-3", "data_offset", place.start)?;
    let name = Span { start: name, size: text.len() as u64 };
    Ok(Record { name, dtype, shape, data: place })
}

/// NAME-6, by sorting: no choice of names makes that slow. Gives the record numbers by name.
pub(crate) fn by_name(records: &[Record], data: &[u8]) -> Result<Vec<usize>> {
    let name = |index: usize| records[index].name.of(data);
    let mut sorted: Vec<_> = (0..records.len()).collect();
    sorted.sort_unstable_by_key(|&index| name(index));
    for pair in sorted.windows(2) {
        let (twice, field) = (name(pair[1]), format_args!("meta[{}].name_offset", pair[1]));
        ensure(twice != name(pair[0]), DuplicateName, "NAME-6", field, twice.escape_ascii())?;
    }
    Ok(sorted)
}

/// DATA-4, by sorting. Gives the records that have bytes by where these lie, one of each group of
/// aliases; disjoint neighbours mean that all are disjoint.
pub(crate) fn distinct(records: &[Record]) -> Result<Vec<usize>> {
    let place = |index: usize| (records[index].data, records[index].dtype); // equal for aliases
    let mut sorted: Vec<_> = (0..records.len()).filter(|&index| records[index].data.size > 0).collect();
    sorted.sort_unstable_by_key(|&index| place(index));
    sorted.dedup_by_key(|index| place(*index));
    for pair in sorted.windows(2) {
        let (end, start) = (records[pair[0]].data.end(), records[pair[1]].data.start);
        ensure(end <= start, Overlap, "DATA-4", format_args!("meta[{}].data_offset", pair[1]), start)?;
    }
    Ok(sorted)
}

/// PAD-1: a walk over all owned ranges in the order of their starts; what lies between the furthest
/// end so far and the next start belongs to nobody.
pub(crate) fn padding(h: &Header, records: &[Record], data: &[u8]) -> Result<()> {
    let mut owned = vec![Span { start: 0, size: 64 }, h.table, Span { start: h.region.end(), size: 8 }];
    for record in records {
        let name = Span { size: record.name.size + 1, ..record.name };
        owned.extend([name, record.shape, record.data]);
    }
    owned.sort_unstable();
    let mut done = 0; // what lies before it is owned or was looked at
    for next in owned {
        if next.start > done {
            let gap = Span { start: done, size: next.start - done }.of(data);
            let zero = gap.iter().all(|&byte| byte == 0);
            ensure(zero, NonzeroPadding, "PAD-1", "padding", format_args!("after byte {done}"))?;
        }
        done = done.max(next.end());
    }
    Ok(())
}

/// BOOL-1. Aliases are looked at once: a thousand names for one tensor must not cost a thousand
/// passes.
pub(crate) fn bools(records: &[Record], distinct: &[usize], data: &[u8]) -> Result<()> {
    for &index in distinct.iter().filter(|&&index| records[index].dtype.name == "BOOL") {
        let wrong = records[index].data.of(data).iter().position(|&byte| byte > 1);
        let field = format_args!("meta[{index}].data");
        ensure(wrong.is_none(), BadBool, "BOOL-1", field, "neither 0 nor 1")?;
    }
    Ok(())
}
