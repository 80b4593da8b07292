"""The HTML report: safe whatever names a file holds, whole in itself, and usable in a browser."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import browser
import pytest
import toy_suite

from weig.conformance import report_badge, report_html, results
from weig.conformance.manifest import Case, Manifest, Rule
from weig.conformance.outcome import Difference, Outcome, Result
from weig.conformance.results import AdapterInfo, Results
from weig.tools.cli import main

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>&amp;{{data}}"
)
ESCAPES = "\u202e\x1b\u2028\ud800"
LONG = "w" * 300  # one word, wider than any phone
VOID = {"meta", "input", "br", "link", "img"}


def some(suite: Manifest) -> Results:
    """Two loaders over the toy suite; the first fails in each way that shows."""
    labels = ("first", "second")
    adapters = tuple(
        AdapterInfo(
            label, (f"./{label}",), ("--", f"./{label}"), f"lib{label}", "1", "c", ("core", "data")
        )
        for label in labels
    )
    rows = [Result(label, case.ident, Outcome.PASS) for label in labels for case in suite.cases]
    odd = {
        "bad-1": Result(
            "first",
            "bad-1",
            Outcome.WRONG_VERDICT,
            differences=(Difference("status", "rejected with BAD", "accepted, 1 tensors"),),
            stderr="one line\nanother\n",
        ),
        "bad-2": Result("first", "bad-2", Outcome.CRASH, detail="died of SIGSEGV"),
        "choice": Result("first", "choice", Outcome.WRONG_CODE),
        "deep": Result("first", "deep", Outcome.NOT_CLAIMED, detail="profile deep"),
    }
    found = tuple(odd.get(r.case, r) if r.adapter == "first" else r for r in rows)
    return Results(suite.format, suite.suite, 5, "auto", False, 1.5, adapters, found)


def hostile(suite: Manifest) -> tuple[Results, Manifest]:
    """The same, with all that others can write being out to break the page."""
    text = HOSTILE + ESCAPES + LONG
    cases = tuple(_hostile_case(case, text) for case in suite.cases)
    suite = replace(suite, cases=cases, rules={HOSTILE: Rule(HOSTILE, text, text)})
    found = some(suite)
    adapters = tuple(
        replace(one, label=f"{text}{i}", loader=text, language=text, version=text, problem=text)
        for i, one in enumerate(found.adapters)
    )
    labels = {old.label: new.label for old, new in zip(found.adapters, adapters, strict=True)}
    difference = Difference(text, text, text)
    rows = tuple(
        Result(labels[one.adapter], one.case, Outcome.CRASH, 0, text, (difference,), text)
        for one in found.results
    )
    return replace(found, adapters=adapters, results=rows, problems=(text,)), suite


def _hostile_case(case: Case, text: str) -> Case:
    marks = tuple(replace(mark, field=text) for mark in case.marks)
    return replace(
        case,
        ident=f"{case.ident} {text}",
        title=text,
        chapter=text,
        rules=(HOSTILE,),
        edit=(text,),
        weakness=text,
        errors=(text,),
        marks=marks,
        fields=marks,
    )


class Page(HTMLParser):
    """Takes a page apart; every tag that is opened must be closed in its order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture
def suite(tmp_path: Path) -> Manifest:
    return toy_suite.read(tmp_path)


# --- the file


def test_the_page_is_well_formed_and_holds_the_facts(suite: Manifest) -> None:
    page = Page(report_html.page(some(suite), suite))
    data, script = page.texts["script"]
    facts = json.loads(data)
    assert [one["label"] for one in facts["adapters"]] == ["first", "second"]
    assert [one["id"] for one in facts["cases"]] == [case.ident for case in suite.cases]
    assert "use strict" in script
    names = [name for name, _ in facts["outcomes"]]
    bad_1 = [case.ident for case in suite.cases].index("bad-1")
    assert names[facts["grid"][0][bad_1]] == "wrong-verdict"
    assert names[facts["grid"][1][bad_1]] == "pass"
    assert facts["notes"][f"0 {bad_1}"]["again"] == (
        "weig conformance run -k bad-1 --isolation case -- ./first"
    )
    assert facts["cases"][bad_1]["bytes"] == [
        {
            "at": 0,
            "hex": b"EVILbad-1".hex(),
            "text": "EVILbad-1",
            "under": [[0, 4, "magic", True]],
            "apart": False,
            "cut": False,
        }
    ]


def test_the_page_asks_for_nothing(suite: Manifest) -> None:
    text = report_html.page(some(suite), suite)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|\bimport\b|fetch\(|XMLHttp", text)
    for tag, attributes in Page(text).tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"}
        assert not {"src", "href", "srcset", "action"} & set(attributes) or (
            attributes.get("href", "") or ""
        ).startswith("#")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]


def test_the_script_never_makes_markup_of_text() -> None:
    script = (Path(report_html.__file__).parent / "report.js").read_text("utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(", script
    )


def test_nothing_that_others_wrote_gets_out_of_the_data(suite: Manifest) -> None:
    text = report_html.page(*hostile(suite))
    page = Page(text)
    usual = Page(report_html.page(some(suite), suite))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in usual.tags]
    data = page.texts["script"][0]
    assert not set("<>&") & set(data)
    assert data.isascii()
    assert HOSTILE in json.loads(data)["cases"][0]["title"]
    assert page.texts["script"][1] == usual.texts["script"][1]
    assert not set(ESCAPES) & set(text)
    for title in (page.texts["title"], page.texts["h1"]):
        assert "".join(title).startswith("toy conformance")


def test_a_format_with_a_hostile_name(suite: Manifest) -> None:
    found = replace(some(suite), format=HOSTILE)
    page = Page(report_html.page(found, suite))
    usual = Page(report_html.page(some(suite), suite))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in usual.tags]
    assert "".join(page.texts["h1"]) == f"{HOSTILE} conformance"


# --- other reports of results files


@pytest.fixture
def files(suite: Manifest, tmp_path: Path) -> list[str]:
    """The results of two loaders, a file each."""
    whole = some(suite)
    paths = []
    for adapter in whole.adapters:
        mine = tuple(one for one in whole.results if one.adapter == adapter.label)
        path = tmp_path / f"{adapter.label}.jsonl"
        results.write(replace(whole, adapters=(adapter,), results=mine), path)
        paths.append(str(path))
    return paths


def test_merge(suite: Manifest, files: list[str], tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "both.jsonl"
    assert main(["conformance", "merge", str(out), *files]) == 0
    both, whole = results.read(out), some(suite)
    assert (both.adapters, both.results) == (whole.adapters, whole.results)
    assert capsys.readouterr().out == "15 passed, 2 failed, 1 skipped\n"
    before = out.read_bytes()
    assert main(["conformance", "merge", str(out), *files]) == 2
    assert "is there already" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert main(["conformance", "merge", "--force", str(out), files[0], files[0]]) == 2
    assert "twice: first good-1" in capsys.readouterr().err
    assert results.read(out) == both  # a refusal writes nothing


def test_report_writes_files(
    suite: Manifest, files: list[str], tmp_path: Path, capsys: Any
) -> None:
    made = {kind: tmp_path / f"report.{kind}" for kind in ("html", "junit", "badge")}
    options = [word for kind, path in made.items() for word in (f"--{kind}", str(path))]
    words = ["conformance", "report", *files, "--manifest", str(suite.path), *options]
    assert main(words) == 1
    assert capsys.readouterr().out == "15 passed, 2 failed, 1 skipped\n"
    text = made["html"].read_text("utf-8")
    assert json.loads(Page(text).texts["script"][0])["summary"] == "15 passed, 2 failed, 1 skipped"
    assert 'name="bad-1"' in made["junit"].read_text("utf-8")
    assert json.loads(made["badge"].read_text("utf-8"))["message"] == "2 of 17 failed"


def test_run_writes_the_page(suite: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    words = ["conformance", "run", "--manifest", str(suite.path), "-k", "good-1"]
    assert main([*words, "--html", str(path), "--", *toy_suite.command("right")]) == 0
    assert "conforms: 1 passed, 0 failed, 0 skipped" in path.read_text("utf-8")


def test_badges(suite: Manifest) -> None:
    def badge(found: Results) -> tuple[str, str]:
        table = json.loads(report_badge.badge(found))
        assert (table["schemaVersion"], table["label"]) == (1, "toy suite 7")
        return table["message"], table["color"]

    found = some(suite)
    assert badge(found) == ("2 of 17 failed", "red")
    good = replace(found, results=found.results[9:])
    assert badge(good) == ("9 passed", "brightgreen")
    assert badge(replace(good, problems=("stale",))) == ("known failures out of date", "orange")
    skipped = tuple(replace(one, outcome=Outcome.NOT_CLAIMED) for one in good.results)
    assert badge(replace(good, results=skipped)) == ("nothing run", "lightgrey")
    dead = tuple(replace(one, problem="hello: gone") for one in good.adapters)
    assert badge(replace(good, adapters=dead)) == ("did not start", "red")


# --- in a browser


@pytest.fixture(scope="module", params=[1200, 360], ids=["wide", "phone"])
def window(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[browser.Browser]:
    folder = tmp_path_factory.mktemp("browser")
    with browser.started(folder, request.param, 740) as window:
        yield window


@pytest.fixture
def page(suite: Manifest, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    report_html.write(some(suite), suite, path)
    return path


def shown(window: browser.Browser, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(one => one.innerText)"
    texts: list[str] = window.run(script, selector)
    return texts


def wait_for(window: browser.Browser, text: str, selector: str) -> str:
    """What is shown there, once it holds the text (opening is an event that comes later)."""
    for _ in range(50):
        found = "".join(shown(window, selector))
        if text in found:
            break
        time.sleep(0.05)
    assert text in found
    return found


def focus(window: browser.Browser) -> str:
    text: str = window.run("const e = document.activeElement; return e.id || e.innerText")
    return text


def fits(window: browser.Browser) -> bool:
    wide: bool = window.run("return document.documentElement.scrollWidth <= innerWidth")
    return wide


def test_a_failure_opens_to_all_that_is_needed(window: browser.Browser, page: Path) -> None:
    window.open(page)
    assert shown(window, "#summary") == ["not all conform: 15 passed, 2 failed, 1 skipped"]
    assert shown(window, "details.item .name") == ["bad-1", "bad-2", "choice"]
    window.run("document.querySelector('details.item > summary').click()")
    inside = wait_for(window, "weig conformance run", "details.item[open] .inside")
    for text in (
        "case bad-1",
        "A file must start with GOOD.",
        'set magic = "EVIL"',
        "rejected with BAD",
        "accepted, 1 tensors",
        "45 56 49 4c 62 61 64 2d 31",
        "weig conformance run -k bad-1 --isolation case -- ./first",
    ):
        assert text in inside
    assert shown(window, "details.item mark") == ["45", "56", "49", "4c"]
    assert fits(window)
    assert window.complaints() == []


def test_filters_and_views(window: browser.Browser, page: Path) -> None:
    window.open(page, "#view=cases")
    assert shown(window, "tr.row th button") == [
        *("good-1", "good-2", "bad-1", "bad-2", "choice"),
        *("heavy", "deep", "other-end", "bad-end"),
    ]
    window.open(page, "#view=cases&outcome=failed")
    assert shown(window, "tr.row th button") == ["bad-1", "bad-2"]
    assert shown(window, "tr.row td.cell") == ["✕", "✓", "✕", "✓"]
    window.open(page, "#view=cases&loader=second&chapter=good&text=case+good-2")
    assert shown(window, "tr.row th button") == ["good-2"]
    assert shown(window, "thead .loader") == ["second"]
    window.open(page, "#view=cases&text=sigsegv")
    assert shown(window, "tr.row th button") == ["bad-2"]
    window.open(page, "#view=rules")
    assert shown(window, "tr.row th button") == ["TOY-1"]
    assert shown(window, "tr.row td.cell") == ["3/5", "5/5"]
    assert fits(window)
    assert window.complaints() == []


def test_the_keyboard_is_enough(window: browser.Browser, page: Path) -> None:
    window.open(page)
    window.press("/")
    assert focus(window) == "text"
    window.run("document.activeElement.value = 'bad-2';"
               "document.activeElement.form.dispatchEvent(new Event('change'))")  # fmt: skip
    assert shown(window, "details.item .name") == ["bad-2"]
    window.press("Escape")
    assert shown(window, "details.item .name") == ["bad-1", "bad-2", "choice"]
    window.press("Down", "Down")
    assert "bad-2" in focus(window)
    window.press("Enter")
    wait_for(window, "died of SIGSEGV", "details.item[open] .inside")
    window.press("Up", "Up")
    assert focus(window) == "text"
    window.run("document.querySelector('[role=tab][aria-selected=true]').focus()")
    window.press("Right")
    assert focus(window) == "tab-rules"
    assert window.run("return location.hash").startswith("#view=rules")
    window.press("Right", "Tab", "Tab", "Enter")  # past the table itself to its first row
    assert window.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    assert "case good-1" in "".join(shown(window, "tr.open"))


def test_every_control_has_a_name(window: browser.Browser, page: Path) -> None:
    window.open(page)
    names = window.run(
        "return [...document.querySelectorAll('button, input, select, [tabindex], [role]')]"
        ".filter(e => e.offsetParent).map(e => e.getAttribute('aria-label')"
        " || e.getAttribute('aria-labelledby') || e.textContent)"
    )
    assert len(names) > 10
    assert all(names)


@pytest.mark.parametrize("wanted", ["light", "dark"])
def test_light_and_dark(window: browser.Browser, page: Path, wanted: str) -> None:
    other = {"light": "dark", "dark": "light"}[wanted]
    colour = "return getComputedStyle(document.body).backgroundColor"
    feature = {"name": "prefers-color-scheme", "value": wanted}
    window.devtools("Emulation.setEmulatedMedia", features=[feature])
    window.open(page)
    before = window.run(colour)
    assert (before == "rgb(255, 255, 255)") == (wanted == "light")
    assert shown(window, "#theme") == [other.capitalize()]
    window.run("document.getElementById('theme').click()")
    assert window.run(colour) != before
    window.run("localStorage.clear()")


def test_hostile_names_are_only_text(
    window: browser.Browser, suite: Manifest, tmp_path: Path
) -> None:
    path = tmp_path / "hostile.html"
    report_html.write(*hostile(suite), path)
    for view in ("failures", "rules", "cases"):
        window.open(path, f"#view={view}&text=%3Cimg")
        window.run(
            "document.querySelectorAll('details.item > summary, tr.row th button')"
            ".forEach(one => one.click())"
        )
        assert window.run("return document.title") == "toy conformance: not all conform"
        assert window.run("return document.querySelectorAll('img').length") == 0
        wait_for(window, "onerror=alert(1)", ".inside")
        assert fits(window)
    assert window.complaints() == []


def test_the_policy_lets_no_other_script_run(window: browser.Browser, page: Path) -> None:
    window.open(page)
    window.run(
        "const one = document.createElement('script'); one.textContent = 'document.title = 1';"
        "document.body.append(one); document.body.insertAdjacentHTML('beforeend', '<img src=x>')"
    )
    assert window.run("return document.title") == "toy conformance: not all conform"
    assert len([text for text in window.complaints() if "Content Security Policy" in text]) == 2
