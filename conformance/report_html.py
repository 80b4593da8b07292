"""The report as one HTML file: everything is inside, nothing is fetched.

What results, manifest and adapters say goes into the page as JSON; ``report.js`` shows it as text
nodes only, and a content security policy lets no other script run and nothing be loaded.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import shlex
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from weig.conformance.hexdump import Row, rows
from weig.conformance.manifest import Case, Manifest, Rule
from weig.conformance.outcome import Outcome, Result, bucket
from weig.conformance.report_text import again, summary, wanted
from weig.conformance.results import AdapterInfo, Results, conforms
from weig.conformance.staging import Sources
from weig.conformance.text import printable

__all__ = ["facts", "page", "write"]

_FOLDER = resources.files("weig.conformance")
# A data block must hold no "<" (it could end the block, or start a comment), and no "&" or ">" for
# readers that know less. All three stand only inside strings of JSON, which has escapes for them.
_UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def write(results: Results, manifest: Manifest, path: Path) -> None:
    """Writes the report; raises OSError."""
    path.write_text(page(results, manifest), "utf-8")


def page(results: Results, manifest: Manifest) -> str:
    """The whole page. ``manifest`` must be that of the suite that was run."""
    style, script = _text("report.css"), _text("report.js")
    name = printable(f"{results.format} conformance")
    parts = {
        "heading": html.escape(name),
        "title": html.escape(f"{name}: {_verdict(results)}"),
        "policy": html.escape(
            f"default-src 'none'; base-uri 'none'; form-action 'none'; "
            f"style-src {_digest(style)}; script-src {_digest(script)}"
        ),
        "style": style,
        "script": script,
        "data": json.dumps(facts(results, manifest), separators=(",", ":")).translate(_UNSAFE),
        "summary": html.escape(f"{_verdict(results)}: {summary(results)}"),
    }
    # Split once, so that nothing put in is looked at again.
    head, *pieces = _text("report.html").split("{{")
    return head + "".join(
        parts[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces)
    )


def facts(results: Results, manifest: Manifest) -> dict[str, Any]:
    """All that the page shows. Whatever others wrote is made printable here.

    ``grid[adapter][case]`` is an index of ``outcomes``, -1 where there is no result; ``notes``
    holds what else there is to say of one, under the key ``"adapter case"``.
    """
    ran = {item.case for item in results.results}
    cases = [case for case in manifest.cases if case.ident in ran]
    column = {adapter.label: i for i, adapter in enumerate(results.adapters)}
    place = {case.ident: i for i, case in enumerate(cases)}
    outcomes = list(Outcome)
    grid = [[-1] * len(cases) for _ in results.adapters]
    notes = {}
    for item in results.results:
        i, j = column[item.adapter], place[item.case]
        grid[i][j] = outcomes.index(item.outcome)
        if note := _note(item, results):
            notes[f"{i} {j}"] = note
    wrong = {item.case for item in results.results if _is_wrong(item)}
    sources = Sources.of(manifest)
    return {
        "run": _run(results),
        "conforms": conforms(results),
        "verdict": _verdict(results),
        "summary": summary(results),
        "problems": [printable(problem) for problem in results.problems],
        "outcomes": [[one, bucket(one, results.strict_codes)] for one in outcomes],
        "adapters": [_adapter(adapter) for adapter in results.adapters],
        "rules": _rules(manifest, cases),
        "cases": [_case(case, sources, case.ident in wrong) for case in cases],
        "grid": grid,
        "notes": notes,
    }


def _text(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _digest(text: str) -> str:
    """A source of a content security policy: this very text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _verdict(results: Results) -> str:
    one = len(results.adapters) == 1
    if conforms(results):
        return "conforms" if one else "all conform"
    return "does not conform" if one else "not all conform"


def _run(results: Results) -> str:
    """How the run was made, in one line."""
    parts = [
        f"{results.format} suite {results.suite}",
        f"{results.seconds:.1f} s",
        f"seed {results.seed}",
        f"isolation {results.isolation}",
    ]
    return printable(" · ".join(parts + ["strict codes"] * results.strict_codes))


def _is_wrong(item: Result) -> bool:
    """Whether there is anything to look into: also where it counts as passed or skipped."""
    return item.outcome not in (Outcome.PASS, Outcome.NOT_CLAIMED, Outcome.NOT_RUN)


def _note(item: Result, results: Results) -> dict[str, Any]:
    """What there is to say of a result beside its outcome; mostly nothing."""
    note: dict[str, Any] = {}
    if item.detail:
        note["detail"] = printable(item.detail)
    if item.differences:
        note["differences"] = [
            [printable(text) for text in (one.where, one.want, one.got)] for one in item.differences
        ]
    if item.stderr:
        note["stderr"] = _lines(item.stderr)
    if _is_wrong(item):
        note["again"] = _lines(again(item, results))
    return note


def _adapter(adapter: AdapterInfo) -> dict[str, Any]:
    command = _lines(shlex.join(adapter.command))
    guards = [f"guarded: {text}" for text in adapter.guarded]
    guards += [f"not guarded: {text}" for text in adapter.unguarded]
    return {
        "label": printable(adapter.label),
        "loader": printable(f"{adapter.loader} {adapter.version}".strip()),
        "language": printable(adapter.language),
        "profiles": [printable(profile) for profile in adapter.profiles],
        "problem": printable(adapter.problem),
        "started": adapter.started,
        "guards": [printable(text) for text in guards],
        "stderr": _lines(adapter.stderr),
        "doctor": "" if adapter.started else f"weig conformance doctor -- {command}",
    }


def _lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.splitlines())


def _rules(manifest: Manifest, cases: Sequence[Case]) -> list[list[str]]:
    """The rules that the cases name, in the order of the manifest: id, sentence, section."""
    named = dict.fromkeys(ident for case in cases for ident in case.rules)
    order = [ident for ident in manifest.rules if ident in named]
    order += [ident for ident in named if ident not in manifest.rules]
    found = [manifest.rules.get(ident, Rule(ident, "", "")) for ident in order]
    return [[printable(text) for text in (one.ident, one.text, one.section)] for one in found]


def _case(case: Case, sources: Sources, with_bytes: bool) -> dict[str, Any]:
    facts = {
        "id": printable(case.ident),
        "title": printable(case.title),
        "chapter": printable(case.chapter),
        "rules": [printable(ident) for ident in case.rules],
        "want": printable(wanted(case)),
        "level": case.level,
        "size": case.size,
        "edit": [printable(edit) for edit in case.edit],
        "weakness": printable(case.weakness),
    }
    if with_bytes:
        facts["bytes"] = [_row(row) for row in rows(case, sources)]
    return facts


def _row(row: Row) -> dict[str, Any]:
    return {
        "at": row.offset,
        "hex": row.data.hex(),
        "text": row.text,
        "under": [[one.low, one.high, printable(one.field), one.edited] for one in row.under],
        "apart": row.apart,
        "cut": row.cut,
    }
