//! Opening a file: all checks of level *open*, and the tensors.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use crate::dtype::Dtype;
use crate::error::{ensure, refusal, Code::*, Result};
use crate::storage::{self, Identity, Storage, Via};
use crate::ByteOrder;

/// NUM-2: the largest count, offset, size or dimension.
const MAX_NUMBER: u64 = (1 << 53) - 1;
const SENTINEL: u64 = 0x5745_4947_454E_4421;
pub(crate) const RECORD: u64 = 48;
/// NAME-3 with the NUL: where the search for it ends.
const MAX_NAME: u64 = 1024;

/// An open WEIG file, wholly checked at level *open*.
///
/// There is no `close`: dropping the file releases it, and tensors borrow from it, so the compiler
/// keeps the memory until the last view is gone (OPEN-12).
#[derive(Debug)]
pub struct File {
    handle: fs::File,
    identity: Identity,
    pub(crate) order: ByteOrder,
    pub(crate) header: Header,
    pub(crate) storage: Storage,
    pub(crate) records: Vec<Record>,
    /// Record numbers, sorted by name.
    by_name: Vec<usize>,
    /// Numbers of the records with bytes, sorted by where these lie.
    pub(crate) by_data: Vec<usize>,
}

/// The numbers of a header that were checked.
#[derive(Debug)]
pub(crate) struct Header {
    pub count: u64,
    pub meta_offset: u64,
    pub aux_start: u64,
    pub data_offset: u64,
    /// Where the data region ends and the sentinel starts.
    pub end: u64,
}

/// The numbers of a record that were checked. Names and dimensions stay where they lie: records
/// may share them, and copies could be many times as large as the file.
#[derive(Debug)]
pub(crate) struct Record {
    pub name_offset: u64,
    pub name_size: u64,
    pub dtype: Dtype,
    pub shape_offset: u64,
    pub rank: u64,
    pub data_offset: u64,
    pub data_size: u64,
}

impl Record {
    /// Equal for aliases, and sorted by where the bytes lie (DATA-4).
    pub fn place(&self) -> (u64, u64, Dtype) {
        (self.data_offset, self.data_size, self.dtype)
    }
}

/// NUM-2.
fn number(value: u64, field: &str) -> Result<u64> {
    ensure(value <= MAX_NUMBER, NumberTooLarge, "NUM-2", field, value)?;
    Ok(value)
}

fn byte_order(header: &[u8; 64]) -> Result<ByteOrder> {
    // HDR-2. What a file is instead helps the person who took the wrong one.
    let other = match &header[..] {
        [0x47, 0x49, 0x45, 0x57, ..] => return Ok(ByteOrder::Little),
        [0x57, 0x45, 0x49, 0x47, ..] => return Ok(ByteOrder::Big),
        h if h.starts_with(b"version https://git-lfs") => "a git-LFS pointer",
        h if h.starts_with(b"<!") || h.starts_with(b"<html") || h.starts_with(b"<HTML") => "HTML",
        h if h.starts_with(b"PK\x03\x04") => "ZIP",
        h if h.starts_with(b"GGUF") => "GGUF",
        h if h.starts_with(b"\x1f\x8b") => "gzip",
        h if h.starts_with(b"\x93NUMPY") => "npy",
        h if h[8] == b'{' => "perhaps safetensors",
        _ => "no known format",
    };
    Err(refusal(BadMagic, "HDR-2", "header.magic", other))
}

/// Checks the first 64 bytes against sections 3 to 6 and the real size of the file.
fn parse_header(raw: &[u8; 64], order: ByteOrder, real_size: u64) -> Result<Header> {
    let version = order.u32(raw, 4);
    ensure(version == 1, BadVersion, "HDR-3", "header.version", version)?;
    let count = number(order.u64(raw, 8), "header.tensor_count")?;
    let meta_offset = number(order.u64(raw, 16), "header.meta_offset")?;
    let data_offset = number(order.u64(raw, 24), "header.data_offset")?;
    let size = number(order.u64(raw, 32), "header.file_size")?;
    let flags = order.u64(raw, 40);

    ensure(size.is_multiple_of(8) && size >= 72, BadFileSize, "HDR-4", "header.file_size", size)?;
    ensure(real_size >= size, Truncated, "HDR-5", "header.file_size", real_size)?;
    ensure(real_size <= size, TrailingData, "HDR-6", "header.file_size", real_size)?;
    ensure(flags & 0xFFFF_FFFF == 0, UnknownFlag, "HDR-7", "header.flags", flags)?;
    ensure(raw[48..] == [0; 16], BadReserved, "HDR-8", "header.reserved", "not zero")?;

    ensure(meta_offset >= 64, BadMetaTable, "META-1", "header.meta_offset", meta_offset)?;
    ensure(meta_offset.is_multiple_of(8), BadMetaTable, "META-2", "header.meta_offset", meta_offset)?;
    let room = data_offset.checked_sub(meta_offset).map(|bytes| bytes / RECORD);
    ensure(room >= Some(count), BadMetaTable, "META-3", "header.tensor_count", count)?;
    ensure(data_offset.is_multiple_of(64), Misaligned, "REGION-1", "header.data_offset", data_offset)?;
    let end = size - 8; // at least 64, by HDR-4
    ensure(data_offset <= end, BadDataRegion, "REGION-2", "header.data_offset", data_offset)?;
    let aux_start = meta_offset + RECORD * count; // at most data_offset, by META-3
    Ok(Header { count, meta_offset, aux_start, data_offset, end })
}

/// Checks one record against sections 3, 5 and 7 to 10; fields are named without their record.
fn parse_record(raw: &[u8], order: ByteOrder, h: &Header, storage: &Storage) -> Result<Record> {
    let name_offset = number(order.u64(raw, 0), "name_offset")?;
    let shape_offset = number(order.u64(raw, 16), "shape_offset")?;
    let rank = number(order.u64(raw, 24), "shape_count")?;
    let data_offset = number(order.u64(raw, 32), "data_offset")?;
    let data_size = number(order.u64(raw, 40), "data_size")?;
    let (code, pad) = (order.u32(raw, 8), order.u32(raw, 12));
    ensure(pad == 0, BadReserved, "META-4", "pad", pad)?;
    let dtype = Dtype::from_code(code).ok_or_else(|| refusal(BadDtype, "DTYPE-1", "dtype", code))?;

    let in_aux = h.aux_start <= name_offset && name_offset < h.data_offset;
    ensure(in_aux, BadName, "NAME-1", "name_offset", name_offset)?;
    // Never further than 1024 bytes, so that names that share storage cannot make this slow.
    let window = storage.span(name_offset, MAX_NAME.min(h.data_offset - name_offset));
    let nul = window.iter().position(|&byte| byte == 0);
    let no_nul = || refusal(BadName, "NAME-2 or NAME-3", "name_offset", "no NUL where one must be");
    let name = &window[..nul.ok_or_else(no_nul)?];
    ensure(!name.is_empty(), BadName, "NAME-3", "name_offset", "an empty name")?;
    ensure(std::str::from_utf8(name).is_ok(), BadName, "NAME-4", "name_offset", name.escape_ascii())?;
    let control = name.iter().any(u8::is_ascii_control);
    ensure(!control, BadName, "NAME-5", "name_offset", name.escape_ascii())?;

    ensure(rank <= 64, BadShape, "SHAPE-1", "shape_count", rank)?;
    let in_aux = h.aux_start <= shape_offset
        && shape_offset <= h.data_offset
        && rank <= (h.data_offset - shape_offset) / 8;
    ensure(in_aux, BadShape, "SHAPE-2", "shape_offset", shape_offset)?;
    // The product of the dimensions that are not zero, kept at or below what SHAPE-4 allows.
    let limit = MAX_NUMBER / dtype.size();
    let (mut elements, mut has_zero) = (1, false);
    for dim in dimensions(storage.span(shape_offset, 8 * rank), order) {
        number(dim, "shape")?;
        match limit.checked_div(dim) {
            None => has_zero = true,
            Some(most) => {
                ensure(elements <= most, BadShape, "SHAPE-4", "shape", dim)?;
                elements *= dim;
            }
        }
    }
    let right = if has_zero { 0 } else { elements * dtype.size() };
    ensure(data_size == right, BadDataSize, "SHAPE-5", "data_size", data_size)?;

    ensure(data_offset.is_multiple_of(64), Misaligned, "DATA-1", "data_offset", data_offset)?;
    ensure(data_offset >= h.data_offset, BadDataRange, "DATA-2", "data_offset", data_offset)?;
    let in_region = data_offset <= h.end && data_size <= h.end - data_offset;
    ensure(in_region, BadDataRange, "DATA-3", "data_offset", data_offset)?;
    let name_size = name.len() as u64;
    Ok(Record { name_offset, name_size, dtype, shape_offset, rank, data_offset, data_size })
}

fn dimensions(array: &[u8], order: ByteOrder) -> impl Iterator<Item = u64> + '_ {
    array.chunks_exact(8).map(move |dim| order.u64(dim, 0))
}

impl File {
    /// Opens and checks a file: all of it at level *open*, or nothing is given out (OPEN-6).
    pub fn open(path: impl AsRef<Path>, via: Via) -> Result<File> {
        let (handle, identity) = storage::open(path.as_ref())?;
        ensure(identity.size >= 72, TooSmall, "HDR-1", "", identity.size)?;
        // Both ends are read, not faulted in: a map makes the kernel read more than it needs.
        let raw: [u8; 64] = storage::read_at(&handle, 0)?;
        let order = byte_order(&raw)?;
        let header = parse_header(&raw, order, identity.size)?;
        let tail: [u8; 8] = storage::read_at(&handle, header.end)?;
        let sentinel = order.u64(&tail, 0);
        ensure(sentinel == SENTINEL, BadSentinel, "TAIL-1", "sentinel", sentinel)?;

        let storage = Storage::load(&handle, identity.size, via)?;
        let mut file = File {
            handle,
            identity,
            order,
            header,
            storage,
            records: Vec::new(),
            by_name: Vec::new(),
            by_data: Vec::new(),
        };
        file.read_table()?;
        file.check_names()?;
        file.check_overlaps()?;
        Ok(file)
    }

    fn read_table(&mut self) -> Result<()> {
        let (h, storage) = (&self.header, &self.storage);
        let table = storage.span(h.meta_offset, RECORD * h.count);
        // The table lies in the file (META-3, REGION-2), but holes make room for more records than
        // memory has: it is taken for those that are good.
        let mut records = Vec::new();
        for (index, raw) in table.chunks_exact(RECORD as usize).enumerate() {
            let record = parse_record(raw, self.order, h, storage);
            records.push(record.map_err(|error| error.in_record(index))?);
        }
        self.records = records;
        Ok(())
    }

    pub(crate) fn name_bytes(&self, index: usize) -> &[u8] {
        let record = &self.records[index];
        self.storage.span(record.name_offset, record.name_size)
    }

    /// NAME-6, by sorting: no choice of names makes that slow.
    fn check_names(&mut self) -> Result<()> {
        let mut sorted: Vec<usize> = (0..self.records.len()).collect();
        sorted.sort_unstable_by_key(|&index| self.name_bytes(index));
        for pair in sorted.windows(2) {
            let (name, last) = (self.name_bytes(pair[1]), pair[0].max(pair[1]));
            ensure(
                name != self.name_bytes(pair[0]),
                DuplicateName,
                "NAME-6",
                "name_offset",
                name.escape_ascii(),
            )
            .map_err(|error| error.in_record(last))?;
        }
        self.by_name = sorted;
        Ok(())
    }

    /// DATA-4, by sorting. A run of aliases counts as one tensor; disjoint neighbours mean that
    /// all are disjoint.
    fn check_overlaps(&mut self) -> Result<()> {
        let records = &self.records;
        let mut sorted: Vec<usize> =
            (0..records.len()).filter(|&index| records[index].data_size > 0).collect();
        sorted.sort_unstable_by_key(|&index| records[index].place());
        for pair in sorted.windows(2) {
            let (a, b) = (&records[pair[0]], &records[pair[1]]);
            let apart = a.place() == b.place() || a.data_offset + a.data_size <= b.data_offset;
            ensure(apart, Overlap, "DATA-4", "data_offset", b.data_offset)
                .map_err(|error| error.in_record(pair[1]))?;
        }
        self.by_data = sorted;
        Ok(())
    }

    pub fn byte_order(&self) -> ByteOrder {
        self.order
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How this file's bytes are held.
    pub fn via(&self) -> Via {
        self.storage.via
    }

    /// The tensors in the order of the table.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        (0..self.len()).map(|index| Tensor { file: self, index })
    }

    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        self.by_name
            .binary_search_by_key(&name.as_bytes(), |&index| self.name_bytes(index))
            .map(|at| Tensor { file: self, index: self.by_name[at] })
            .map_err(|_| refusal(NoSuchTensor, "no rule", "", name.escape_default()))
    }

    /// OPEN-10: says whether the file that was opened has changed since.
    pub fn check_unmodified(&self) -> Result<()> {
        let same = Identity::ask(&self.handle)? == self.identity;
        ensure(same, Modified, "OPEN-10", "", "the file was changed after it was opened")
    }
}

/// One tensor, borrowed from its file.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    file: &'a File,
    index: usize,
}

impl<'a> Tensor<'a> {
    fn record(&self) -> &'a Record {
        &self.file.records[self.index]
    }

    /// The name. It borrows: only where somebody overwrote a mapped file since it was checked can
    /// the name have become something else than UTF-8, and a panic would be no better answer.
    pub fn name(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.file.name_bytes(self.index))
    }

    pub fn dtype(&self) -> Dtype {
        self.record().dtype
    }

    pub fn shape(&self) -> impl Iterator<Item = u64> + 'a {
        let record = self.record();
        let array = self.file.storage.span(record.shape_offset, 8 * record.rank);
        dimensions(array, self.file.order)
    }

    /// Where the tensor's bytes start in the file.
    pub fn offset(&self) -> u64 {
        self.record().data_offset
    }

    /// The bytes where they lie, in the byte order of the file.
    pub fn bytes(&self) -> &'a [u8] {
        let record = self.record();
        self.file.storage.span(record.data_offset, record.data_size)
    }

    /// Hands the little-endian bytes to `sink`, piece by piece, so that a large tensor of the
    /// other byte order needs no second copy of itself in memory.
    pub fn little_endian(&self, mut sink: impl FnMut(&[u8])) {
        let unit = self.dtype().unit();
        if self.file.order == ByteOrder::Little || unit == 1 {
            return sink(self.bytes());
        }
        // A multiple of every unit, so no element is cut.
        let mut buffer = [0; 1 << 14];
        for piece in self.bytes().chunks(buffer.len()) {
            let turned = &mut buffer[..piece.len()];
            turned.copy_from_slice(piece);
            turned.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
            sink(turned);
        }
    }
}
