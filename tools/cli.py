"""The command line ``weig``: picks a subcommand and turns every refusal into one line."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Sequence

from weig.spec.errors import WeigError, escape
from weig.tools.signals import unwinding

# Subcommand -> (module of weig.tools, one line of help). A module is imported only when it is used.
COMMANDS = {
    "conformance": "run the conformance suite over a loader, in any language",
    "adapter": "answer the adapter protocol with a bundled loader",
    "inspect": "show what a file holds: header, tensors, layout, bytes",
    "verify": "check files deeply; exit 1 where one is bad",
    "convert": "convert between WEIG and safetensors or npz",
    "bench": "measure opening and loading against safetensors",
    "fixtures": "list, write or pack the test files of the suite",
    "spec": "print the rules of the format, or which cases cover them",
}

EXIT_OK, EXIT_BAD, EXIT_USAGE = 0, 1, 2
EXIT_PIPE = 141  # as a shell tells of a process that SIGPIPE ended


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The argument parser, with all of the options of the one subcommand ``only``."""
    result = argparse.ArgumentParser(
        prog="weig",
        description="WEIG: a model-weight file that a process maps and uses as it is.",
        epilog="Exit status: 0 done; 1 a file is bad or a loader does not conform; 2 bad usage.",
    )
    result.add_argument("--version", action="store_true", help="print the version and stop")
    commands = result.add_subparsers(metavar="COMMAND", dest="command")
    for name, text in COMMANDS.items():
        if name == only:
            importlib.import_module(f"weig.tools.{name}").add_parser(commands)
        else:
            commands.add_parser(name, help=text)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; gives its exit status. Never lets a traceback out for bad input."""
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = words[0] if words and words[0] in COMMANDS else None
    if words and words[-1] == "--":
        # An empty variable behind the dashes must not become another, green run.
        return fail("there is nothing after --", EXIT_USAGE)
    if sys.stdout is None:  # closed by the caller: what we print has no place to go
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal of another encoding cannot show every name; it is shown escaped then.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with unwinding():
            status = _act(words, chosen)
            sys.stdout.flush()
    except WeigError as error:
        return fail(str(error))
    except BrokenPipeError:
        _drop_output()  # whoever reads our output has gone; there is nobody to tell
        return EXIT_PIPE
    except OSError as error:
        _drop_output()
        return fail(f"IO: {escape(str(error))}")
    except KeyboardInterrupt:  # also while the modules of a command are being imported
        return 130
    return status


def _act(words: Sequence[str], chosen: str | None) -> int:
    args = parser(chosen).parse_args(words)
    if args.version:
        return version()
    if chosen is None:
        parser().print_help(sys.stderr)
        return EXIT_USAGE
    status: int = args.run(args)
    return status


def version() -> int:
    import weig

    print(f"weig {weig.__version__}")
    return EXIT_OK


def _drop_output() -> None:
    """Lets what is still buffered go nowhere, so that the interpreter's own flush cannot fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(message: str, status: int = EXIT_BAD) -> int:
    """One line on standard error; gives the exit status."""
    print(f"weig: error: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
