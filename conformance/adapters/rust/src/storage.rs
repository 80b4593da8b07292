//! From a path to bytes: opening, the file's identity, mapping and copying.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use memmap2::{Mmap, MmapMut, MmapOptions};

use crate::error::{ensure, refusal, Code::*, Result};

/// How the bytes are held (section 17).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The file itself, mapped shared and read-only.
    Mmap,
    /// A private copy; nothing that happens to the file afterwards matters (OPEN-14).
    Read,
}

/// What tells a file from another one and from its own later states (OPEN-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    pub size: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(meta: &Metadata) -> Self {
        Identity {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        }
    }

    /// Asks the descriptor, never the path (OPEN-3).
    pub fn ask(file: &File) -> Result<Self> {
        Ok(Identity::of(&file.metadata()?))
    }
}

/// Opens a regular file without ever waiting (OPEN-1, OPEN-2).
pub(crate) fn open(path: &Path) -> Result<(File, Identity)> {
    let irregular = || refusal(NotRegularFile, "OPEN-1", "", "not a regular file");
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = match opened {
        Ok(file) => file,
        // A socket and a device without a driver cannot be opened at all; only the path can tell
        // what they are.
        Err(error) => {
            return Err(match std::fs::metadata(path) {
                Ok(meta) if !meta.is_file() => irregular(),
                _ => error.into(),
            })
        }
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(irregular());
    }
    Ok((file, Identity::of(&meta)))
}

/// Reads `N` bytes at `offset`. Interrupted and short reads are tried again (OPEN-11).
pub(crate) fn read_at<const N: usize>(file: &File, offset: u64) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// The bytes of a whole file; read-only either way (OPEN-12).
#[derive(Debug)]
pub(crate) struct Storage {
    map: Mmap,
    pub via: Via,
}

impl Storage {
    /// `size` has been checked against the size of the descriptor (OPEN-4).
    pub fn load(file: &File, size: u64, via: Via) -> Result<Self> {
        // OPEN-9: refuse, never cut the number.
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        ensure(length <= isize::MAX.unsigned_abs(), TooLarge, "OPEN-9", "", size)?;
        let map = match via {
            Via::Mmap => map_file(file, length)?,
            Via::Read => {
                // Anonymous memory is aligned to a page as a map of the file is, and where there
                // is not enough of it this says so instead of ending the process.
                let mut copy = MmapMut::map_anon(length)?;
                file.read_exact_at(&mut copy, 0)?;
                copy.make_read_only()?
            }
        };
        Ok(Storage { map, via })
    }

    /// A range that has been checked to lie in the file, whose size fits a `usize`.
    pub fn span(&self, start: u64, size: u64) -> &[u8] {
        &self.map[start as usize..(start + size) as usize]
    }
}

/// The one unsafe call of this crate.
///
/// A map is a slice only as long as nobody writes to the file or cuts it: that is the condition
/// under which section 17 offers this way, and the operating system gives no means to check it.
/// What nobody can rule out does not become memory unsafe by what this crate computes: every
/// bound comes from numbers that were copied out and checked. A page that is gone raises SIGBUS.
#[allow(unsafe_code)]
fn map_file(file: &File, length: usize) -> io::Result<Mmap> {
    unsafe { MmapOptions::new().len(length).map(file) }
}
