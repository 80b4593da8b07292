"""The exit statuses of ``weig conformance``, and the refusals that lead to them."""

from __future__ import annotations

import sys

from weig.conformance.text import printable

EXIT_CONFORMS, EXIT_FAILS, EXIT_USAGE, EXIT_NOT_STARTED, EXIT_SUITE = range(5)

EPILOG = """\
exit status:
  0  conforms
  1  does not, or a known failure is not what it was
  2  bad usage, or no case is selected
  3  an adapter could not be built, did not start, or is not guarded by what --guard= names
  4  a fault of the suite itself

An adapter is a program that answers lines of text with lines of JSON: conformance/PROTOCOL.md.
"""


class UsageError(Exception):
    """The command line asks for something that there is not (exit status 2)."""


def say(message: str, status: int) -> int:
    """One line on standard error; gives the exit status."""
    print(f"weig: error: {printable(message)}", file=sys.stderr)
    return status
