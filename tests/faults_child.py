"""Opens one file with loaders in turn, and prints as JSON what each says: see tests/faults.py.

python faults_child.py FILE 'BACKEND MODE'...
"""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np  # noqa: F401  imported before anything fails

import weig


def answer(path: str, mode: str, backend: str) -> tuple[str, list[str]]:
    """A code, or "ok" and the digests of all tensors; what is no WeigError, by its class."""
    try:
        with weig.open(path, mode, backend) as file:
            found = [hashlib.sha256(view.data).hexdigest() for view in file.views()]
            file.check_unmodified()
    except weig.WeigError as error:
        return (error.code if str(error).isprintable() else "unprintable"), []
    except Exception as error:
        return f"{type(error).__name__}: {error}", []
    return "ok", found


if __name__ == "__main__":
    path, *subjects = sys.argv[1:]
    print(json.dumps({s: answer(path, s.split()[1], s.split()[0]) for s in subjects}))
