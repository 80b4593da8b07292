"""The closed list of error codes (SPEC.md, section 14) and the one exception that carries them."""

from __future__ import annotations

__all__ = ["CODES", "WeigError", "escape", "excerpt", "quoted"]

LONGEST = 100  # characters of text from a file in a message

CODES = {
    "IO": "the operating system refused to open, map or read the file",
    "NOT_REGULAR_FILE": "a directory, FIFO, socket or device",
    "TOO_LARGE": "legal, but more than this process can address",
    "TOO_SMALL": "shorter than the 72 bytes of the smallest file",
    "BAD_MAGIC": "the first four bytes are not those of a WEIG file",
    "BAD_VERSION": "a version of the format that this loader does not know",
    "UNKNOWN_FLAG": "a must-understand flag that this loader does not know",
    "BAD_RESERVED": "a reserved field or a record's padding is not zero",
    "TRUNCATED": "the file is shorter than its header says",
    "TRAILING_DATA": "the file is longer than its header says",
    "BAD_FILE_SIZE": "the header's file size can belong to no file",
    "BAD_SENTINEL": "the last eight bytes are not the sentinel",
    "BAD_META_TABLE": "the meta table's offset, alignment, count or range",
    "BAD_DATA_REGION": "the data region's offset or range",
    "MISALIGNED": "the data region or a tensor is not at a multiple of 64",
    "BAD_DTYPE": "a dtype code that is not in the table",
    "BAD_NAME": "a name's range, terminator, length, control byte or UTF-8",
    "DUPLICATE_NAME": "two records have the same name",
    "BAD_SHAPE": "a shape's range, rank or product",
    "BAD_DATA_SIZE": "the data size is not the shape's product times the element size",
    "BAD_DATA_RANGE": "a tensor's bytes lie outside the data region",
    "OVERLAP": "two tensors share bytes without being aliases",
    "NUMBER_TOO_LARGE": "a count, offset, size or dimension past 2^53 - 1",
    "NONZERO_PADDING": "a byte that nothing owns is not zero (deep)",
    "BAD_BOOL": "a BOOL element that is neither 0 nor 1 (deep)",
    "MODIFIED": "the file changed after it was opened",
    "CLOSED": "the file object is closed",
    "NO_SUCH_TENSOR": "no tensor has that name",
    "UNSUPPORTED": "legal, but this loader cannot do it",
}


class WeigError(Exception):
    """The only exception that weig raises for what a file is or says.

    ``code`` is one of `CODES` and is stable; ``message`` is for people and never compared.
    ``field`` names the place in the file (``meta[3].data_offset``) and ``rule`` the sentence of
    SPEC.md that is broken, where there is one; both may be None.
    """

    def __init__(
        self, code: str, message: str, *, field: str | None = None, rule: str | None = None
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.field = field
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def escape(text: str | bytes) -> str:
    """Text from a file made safe for a terminal or a log: printable characters alone.

    Everything else (control characters, line breaks, bidirectional overrides, lone surrogates, and
    bytes that are not UTF-8) is written as a backslash escape; a backslash is doubled.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    return "".join(c if c.isprintable() and c != "\\" else _escaped(c) for c in text)


def excerpt(text: str | bytes) -> str:
    """`escape` of text that may be long: of more than `LONGEST` characters the middle is left out.

    A file may hold megabytes where a word should be, and a message is a line.
    """
    if len(text) <= LONGEST:
        return escape(text)
    ends = text[: LONGEST * 3 // 4], text[-LONGEST // 4 :]
    return " ... ".join(map(escape, ends))


def quoted(text: str | bytes) -> str:
    """An `excerpt` in quotation marks."""
    return f"'{excerpt(text)}'"


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")
