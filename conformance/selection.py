"""Which cases of a manifest to run.

(Not called ``select``: beside a script of this folder that name would hide the standard module.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from weig.conformance.manifest import Case

__all__ = ["Selection", "choose"]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a case must match: one word of each list that is not empty.

    All are globs; a word without a wildcard is matched whole.
    """

    cases: tuple[str, ...] = ()
    chapters: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def choose(cases: Sequence[Case], selection: Selection) -> list[Case]:
    """The selected cases, in their order."""
    return [case for case in cases if _chosen(case, selection)]


def _chosen(case: Case, selection: Selection) -> bool:
    return (
        _any(selection.cases, (case.ident,))
        and _any(selection.chapters, (case.chapter,))
        and _any(selection.rules, case.rules)
        and _any(selection.tags, case.tags)
    )


def _any(globs: Sequence[str], words: Sequence[str] | frozenset[str]) -> bool:
    return not globs or any(fnmatchcase(word, glob) for word in words for glob in globs)
