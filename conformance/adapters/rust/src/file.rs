//! Opening a file, and its tensors.

use std::borrow::Cow;
use std::fs::{self, Metadata, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use memmap2::{Mmap, MmapMut, MmapOptions};

use crate::check::{self, ByteOrder, Header, Record};
use crate::dtype::Dtype;
use crate::error::{ensure, refusal, Code::*, Result};

/// How the bytes are held (section 17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The file itself, mapped shared and read-only.
    Mmap,
    /// A private copy; nothing that happens to the file afterwards matters (OPEN-14).
    Read,
}

/// An open WEIG file, wholly checked at level *open*.
///
/// There is no `close`: dropping the file releases it, and tensors borrow from it, so the compiler
/// keeps the memory until the last view is gone (OPEN-12).
#[derive(Debug)]
pub struct File {
    handle: fs::File,
    opened: Metadata,
    /// All of the file; read-only also where it is a copy.
    data: Mmap,
    header: Header,
    records: Vec<Record>,
    /// Record numbers, sorted by name.
    by_name: Vec<usize>,
    /// Numbers of the records with bytes, sorted by where these lie, one of each group of aliases.
    distinct: Vec<usize>,
}

/// Opens a regular file without ever waiting (OPEN-1, OPEN-2).
fn open_regular(path: &Path) -> Result<(fs::File, Metadata)> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    // The descriptor tells about the file (OPEN-3). A socket and a device without a driver cannot be
    // opened at all; only the path can tell what they are.
    let meta = opened.as_ref().map_or_else(|_| fs::metadata(path), fs::File::metadata);
    if let Ok(meta) = &meta {
        ensure(meta.is_file(), NotRegularFile, "OPEN-1", "", "another kind of file")?;
    }
    Ok((opened?, meta?))
}

/// Maps or copies a file whose `size` has been checked (OPEN-4).
fn load(file: &fs::File, size: u64, via: Via) -> Result<Mmap> {
    // OPEN-9: refuse, never cut the number.
    let length = usize::try_from(size).unwrap_or(usize::MAX);
    ensure(length <= isize::MAX.unsigned_abs(), TooLarge, "OPEN-9", "", size)?;
    if via == Via::Mmap {
        // The one unsafe call of this crate. A map is a slice only as long as nobody writes to the
        // file or cuts it: that is the condition under which section 17 offers this way, and the
        // operating system gives no means to check it. What nobody can rule out does not become
        // memory unsafe by what this crate computes: every bound comes from numbers that were copied
        // out and checked. A page that is gone raises SIGBUS.
        #[allow(unsafe_code)]
        let map = unsafe { MmapOptions::new().len(length).map(file) }?;
        return Ok(map);
    }
    // Anonymous memory is aligned to a page as a map of the file is, and where there is not enough
    // of it this says so instead of ending the process.
    let mut copy = MmapMut::map_anon(length)?;
    file.read_exact_at(&mut copy, 0)?;
    Ok(copy.make_read_only()?)
}

impl File {
    /// Opens and checks a file: all of it at level *open*, or nothing is given out (OPEN-6).
    pub fn open(path: impl AsRef<Path>, via: Via) -> Result<File> {
        let (handle, opened) = open_regular(path.as_ref())?;
        let size = opened.size();
        ensure(size >= 72, TooSmall, "HDR-1", "", size)?;
        // Both ends are read, not faulted in: a map makes the kernel read more than it needs.
        // Interrupted and short reads are tried again (OPEN-11).
        let (mut head, mut tail) = ([0; 64], [0; 8]);
        handle.read_exact_at(&mut head, 0)?;
        handle.read_exact_at(&mut tail, size - 8)?;
        let header = check::header(&head, &tail, size)?;
        let data = load(&handle, size, via)?;
        let records = check::records(&header, &data)?;
        let by_name = check::by_name(&records, &data)?;
        let distinct = check::distinct(&records)?;
        Ok(File { handle, opened, data, header, records, by_name, distinct })
    }

    /// Level *deep* (section 12), for a file at rest. It may read the whole file.
    pub fn verify(&self) -> Result<()> {
        check::padding(&self.header, &self.records, &self.data)?;
        check::bools(&self.records, &self.distinct, &self.data)
    }

    pub fn byte_order(&self) -> ByteOrder {
        self.header.order
    }

    /// The tensors in the order of the table.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        self.records.iter().map(|record| Tensor { file: self, record })
    }

    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
        let key = |&index: &usize| self.records[index].name.of(&self.data);
        match self.by_name.binary_search_by_key(&name.as_bytes(), key) {
            Ok(at) => Ok(Tensor { file: self, record: &self.records[self.by_name[at]] }),
            Err(_) => Err(refusal(NoSuchTensor, "no rule", "", name.escape_default())),
        }
    }

    /// OPEN-10: says whether the file that was opened has changed since. Asks the descriptor.
    pub fn check_unmodified(&self) -> Result<()> {
        let identity = |m: &Metadata| (m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec());
        let same = identity(&self.handle.metadata()?) == identity(&self.opened);
        ensure(same, Modified, "OPEN-10", "", "the file was changed after it was opened")
    }
}

/// One tensor, borrowed from its file.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    file: &'a File,
    record: &'a Record,
}

impl<'a> Tensor<'a> {
    /// The name. It borrows: only where somebody overwrote a mapped file since it was checked can
    /// the name have become something else than UTF-8, and a panic would be no better answer.
    pub fn name(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.record.name.of(&self.file.data))
    }

    pub fn dtype(&self) -> &'static Dtype {
        self.record.dtype
    }

    pub fn shape(&self) -> impl Iterator<Item = u64> + 'a {
        self.file.header.order.dimensions(self.record.shape.of(&self.file.data))
    }

    /// The bytes where they lie, in the byte order of the file.
    pub fn bytes(&self) -> &'a [u8] {
        self.record.data.of(&self.file.data)
    }

    /// Hands the little-endian bytes to `sink`, piece by piece, so that a large tensor of the
    /// other byte order needs no second copy of itself in memory.
    pub fn little_endian(&self, mut sink: impl FnMut(&[u8])) {
        let unit = self.dtype().unit;
        if self.file.byte_order() == ByteOrder::Little || unit == 1 {
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
