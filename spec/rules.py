"""The rules of SPEC.md: each sentence with what `rules.toml` says about it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Rule", "read_sentences", "rules"]

_PARAGRAPH = re.compile(r"^\*\*([A-Z]+-[0-9]+)\*\*\s+(.*)", re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """One rule of the format.

    ``level`` is open, deep, loader or writer; ``codes`` are the error codes that are right for a
    file that breaks this rule and no other; ``tests`` prove a rule that no file can show.
    """

    id: str
    text: str
    section: str
    level: str
    codes: tuple[str, ...]
    profile: str
    since: int
    tests: tuple[str, ...]


def read_sentences(markdown: str) -> dict[str, str]:
    """Rule id to sentence: the paragraphs that start with an id in bold, in their order."""
    matches = (_PARAGRAPH.match(paragraph) for paragraph in re.split(r"\n\s*\n", markdown))
    return {match[1]: " ".join(match[2].split()) for match in matches if match}


@cache
def rules() -> dict[str, Rule]:
    """All rules by id, in the order of SPEC.md.

    Raises ValueError where SPEC.md and rules.toml do not have the same ids.
    """
    folder = Path(__file__).parent
    sentences = read_sentences((folder / "SPEC.md").read_text(encoding="utf-8"))
    facts = tomllib.loads((folder / "rules.toml").read_text(encoding="utf-8"))["rules"]
    if sentences.keys() != facts.keys():
        different = ", ".join(sorted(sentences.keys() ^ facts.keys()))
        raise ValueError(f"SPEC.md and rules.toml do not have the same rules: {different}")
    return {
        name: Rule(
            id=name,
            text=text,
            section=facts[name]["section"],
            level=facts[name]["level"],
            codes=tuple(facts[name]["codes"]),
            profile=facts[name]["profile"],
            since=facts[name]["since"],
            tests=tuple(facts[name].get("tests", ())),
        )
        for name, text in sentences.items()
    }
