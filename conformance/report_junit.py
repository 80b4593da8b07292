"""JUnit XML: one test suite a loader, one test case a case."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from weig.conformance.manifest import Manifest
from weig.conformance.outcome import Bucket, Result, bucket
from weig.conformance.results import AdapterInfo, Results
from weig.conformance.text import printable

__all__ = ["write"]


def write(results: Results, manifest: Manifest, path: Path) -> None:
    """Writes the report; raises OSError."""
    chapters = {case.ident: case.chapter for case in manifest.cases}
    root = ElementTree.Element("testsuites", name=f"{results.format} {results.suite}")
    for adapter in results.adapters:
        mine = [item for item in results.results if item.adapter == adapter.label]
        buckets = [bucket(item.outcome, results.strict_codes) for item in mine]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=adapter.label,
            tests=str(len(mine)),
            failures=str(buckets.count(Bucket.FAILED)),
            skipped=str(buckets.count(Bucket.SKIPPED)),
            errors="1" if adapter.problem else "0",
            time=f"{sum(item.seconds for item in mine):.3f}",
        )
        _add_guards(suite, adapter)
        for item, one in zip(mine, buckets, strict=True):
            name = f"{adapter.label}.{chapters.get(item.case, '')}"
            case = ElementTree.SubElement(
                suite, "testcase", classname=name, name=item.case, time=f"{item.seconds:.4f}"
            )
            _add(case, item, one)
        if adapter.problem:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=adapter.label,
                name="guard" if adapter.started else "start",
            )
            error = ElementTree.SubElement(case, "error", message=printable(adapter.problem))
            error.text = _lines(adapter.stderr)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, "utf-8", xml_declaration=True)


def _add_guards(suite: ElementTree.Element, adapter: AdapterInfo) -> None:
    """What was guarded, and what was not, where that was asked for."""
    if adapter.guarded or adapter.unguarded:
        properties = ElementTree.SubElement(suite, "properties")
        for name, texts in (("guarded", adapter.guarded), ("not-guarded", adapter.unguarded)):
            for text in texts:
                ElementTree.SubElement(properties, "property", name=name, value=printable(text))


def _add(case: ElementTree.Element, item: Result, one: Bucket) -> None:
    """What came of a case, where it did not simply pass."""
    message = printable(f"{item.outcome}: {item.detail}" if item.detail else str(item.outcome))
    if one is Bucket.SKIPPED:
        ElementTree.SubElement(case, "skipped", message=message)
    elif one is Bucket.FAILED:
        failure = ElementTree.SubElement(case, "failure", type=str(item.outcome), message=message)
        failure.text = _lines(
            "".join(
                f"{difference.where}\n  want {difference.want}\n  got  {difference.got}\n"
                for difference in item.differences
            )
            + item.stderr
        )


def _lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.splitlines())
