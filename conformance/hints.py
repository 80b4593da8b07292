"""What an adapter's author most likely did wrong, told from what came out of the adapter."""

from __future__ import annotations

import re

from weig.conformance.text import printable

__all__ = ["of_death", "of_line"]

# What a line looks like -> what made it so. The first that fits is given.
_LINES = (
    (rb"\xef\xbb\xbf", "It starts with a byte order mark: write UTF-8 without one."),
    (rb"(?s).*\r\n\Z", "It ends with CR LF: write LF alone (binary mode, newline='\\n')."),
    (rb"\s*\{\s*\n\Z", "Pretty-printed JSON: print the object on one line."),
    (rb"\s*\{\s*'", "That is Python's way to print a dict: use json.dumps."),
    (rb".*\bNaN\b|.*\bInfinity\b", "JSON knows no NaN and no Infinity."),
    (rb".*\b(?:True|False|None)\b", "JSON writes true, false and null: use a JSON library."),
    (rb".*,\s*[}\]]", "JSON allows no comma before a closing bracket."),
    (rb"\s*\[", "An answer is an object, {...}, not a list."),
    (rb'.*"id"\s*:\s*\d', 'The id is a string: give it back as it came, "0001" with its zeros.'),
    (rb'.*"(?:nbytes|count|shape|protocol)"\s*:\s*\[?\s*"', "Numbers are not put into quotes."),
    (rb".*\d\.\d|.*\d[eE][+-]?\d", "Whole numbers are written without fraction or exponent."),
    (rb"(?!\s*\{)", "Is that a log line or a banner? Standard output belongs to the protocol."),
)

_DEATHS = (
    ("Traceback (most recent call last)", "A Python exception: its last line says which."),
    ("error while loading shared libraries", "A shared library is missing: its rpath?"),
    ("AddressSanitizer", "AddressSanitizer ended it: its report is on standard error."),
    ("runtime error:", "A sanitizer ended it: its report is on standard error."),
    ("command not found", "A command inside of it does not exist here."),
    ("No module named", "A Python module is missing: the right interpreter, the right venv?"),
)


def of_line(line: bytes) -> tuple[str, ...]:
    """Hints for an answer line that PROTOCOL.md does not allow."""
    found = next((hint for pattern, hint in _LINES if re.match(pattern, line)), None)
    shown = f"It wrote: {printable(line.decode('utf-8', 'backslashreplace'))[:300]}"
    return (shown, found) if found else (shown,)


def of_death(stderr: str) -> tuple[str, ...]:
    """Hints for a process that ended, or went silent, where it should have answered."""
    hints = [hint for sign, hint in _DEATHS if sign in stderr]
    tail = [f"stderr: {printable(line)}" for line in stderr.splitlines()[-5:]]
    return (*hints, *tail)
