"""Files of other kinds that people open by mistake, told by their first bytes (BAD_MAGIC)."""

from __future__ import annotations

# (offset, bytes, what it is), tried in order.
SIGNATURES = (
    (0, b"version https://git-lfs", "a git-LFS pointer: run `git lfs pull`"),
    (0, b"PK\x03\x04", "a ZIP file (npz, or a torch checkpoint)"),
    (0, b"GGUF", "a GGUF file"),
    (0, b"FUGG", "a big-endian GGUF file"),
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"\x93NUMPY", "an npy file"),
    (0, b"\x80\x02", "a pickle (an old torch checkpoint)"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (0, b"<", "HTML or XML: perhaps a page instead of a download"),
    (8, b'{"', "a safetensors file"),
)


def kind_of(head: bytes) -> str | None:
    """What a file is by its first bytes (those of a header are more than enough), or None."""
    for offset, start, kind in SIGNATURES:
        if head[offset : offset + len(start)] == start:
            return kind
    return None
