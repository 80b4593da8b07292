"""``weig conformance init-adapter``: every skeleton builds, speaks, and is ready for its loader."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from weig.conformance import catalogue
from weig.conformance.catalogue import Entry
from weig.conformance.protocol import parse_answer, parse_hello
from weig.tools.cli import main

Out = pytest.CaptureFixture[str]

# What the loaders that are filled in below say of a file: a name with all that JSON escapes in it,
# and 5000 bytes, which is too many to show.
NAME = 'q" b\\ n\n u\x01 é日😀'
DATA = bytes([7]) * 5000


@dataclass(frozen=True)
class Skeleton:
    """A language, the file where its loader is filled in, and code to fill in, which accepts GOOD,
    refuses BAD, fails at ODD, and leaves the rest as it is."""

    language: str
    loader: str
    code: str


SKELETONS = [
    Skeleton(
        "c",
        "loader.c",
        r"""
        static unsigned char bytes[5000];
        static const uint64_t shape[2] = {50, 100};
        static struct tensor tensors[2] = {
            {"q\" b\\ n\n u\001 é日😀", "U8", 2, shape, bytes, 5000},
            {"s", "BOOL", 0, NULL, bytes, 1}};
        for (int i = 0; i < 5000; i++)
            bytes[i] = 7;
        size_t end = strlen(path);
        if (strcmp(path + end - 4, "GOOD") == 0) {
            *model = (struct model){ACCEPTED, NULL, NULL, NULL, "big", 2, tensors};
            return;
        }
        if (strcmp(path + end - 3, "BAD") == 0) {
            *model = (struct model){REJECTED, "BAD_NAME", "a \"\t\"", deep ? "deep" : "f", 0, 0, 0};
            return;
        }
        """,
    ),
    Skeleton(
        "cpp",
        "loader.cpp",
        r"""
        auto end = path.substr(path.rfind('/') + 1);
        if (end == "GOOD")
            return {"big", 2, {
                {"q\" b\\ n\n u\001 é日😀", "U8", {50, 100}, std::vector<unsigned char>(5000, 7)},
                {"s", "BOOL", {}, {7}}}};
        if (end == "BAD")
            throw Refused("BAD_NAME", "a \"\t\"", deep ? "deep" : "f");
        if (end == "ODD")
            throw std::out_of_range("odd");
        """,
    ),
    Skeleton(
        "rust",
        "src/loader.rs",
        r"""
        if path.ends_with("GOOD") {
            let name = "q\" b\\ n\n u\u{1} é日😀".to_string();
            return Ok(Model { byte_order: "big", count: 2, tensors: vec![
                Tensor { name, dtype: "U8", shape: vec![50, 100], data: vec![7; 5000] },
                Tensor { name: "s".to_string(), dtype: "BOOL", shape: vec![], data: vec![7] },
            ] });
        }
        if path.ends_with("BAD") {
            let field = if deep { "deep" } else { "f" };
            return Err(Failure::Refused {
                code: "BAD_NAME", message: "a \"\t\"".to_string(), field: field.to_string() });
        }
        if path.ends_with("ODD") {
            panic!("odd");
        }
        """,
    ),
    Skeleton(
        "go",
        "loader.go",
        r"""
        bytes := make([]byte, 5000)
        for i := range bytes {
            bytes[i] = 7
        }
        switch path[len(path)-4:] {
        case "GOOD":
            return &Model{"big", 2, []Tensor{
                {"q\" b\\ n\n u\x01 é日😀", "U8", []uint64{50, 100}, bytes},
                {"s", "BOOL", nil, bytes[:1]}}}, nil
        case "/BAD":
            field := "f"
            if deep {
                field = "deep"
            }
            return nil, &Refused{"BAD_NAME", "a \"\t\"", field}
        case "/ODD":
            panic("odd")
        }
        """,
    ),
    Skeleton(
        "java",
        "src/main/java/adapter/Loader.java",
        r"""
        byte[] bytes = new byte[5000];
        java.util.Arrays.fill(bytes, (byte) 7);
        if (path.endsWith("GOOD")) {
            return new Model("big", 2, List.of(
                    new Tensor("q\" b\\ n\n u\001 é日😀", "U8", new long[] {50, 100}, bytes),
                    new Tensor("s", "BOOL", new long[] {}, new byte[] {7})));
        }
        if (path.endsWith("BAD")) {
            throw new Refused("BAD_NAME", "a \"\t\"", deep ? "deep" : "f");
        }
        if (path.endsWith("ODD")) {
            throw new IllegalStateException("odd");
        }
        """,
    ),
    Skeleton(
        "javascript",
        "loader.js",
        r"""
        if (path.endsWith('GOOD')) {
          return { byteOrder: 'big', count: 2, tensors: [
            { name: 'q" b\\ n\n u\x01 é日😀', dtype: 'U8', shape: [50, 100],
              data: new Uint8Array(5000).fill(7) },
            { name: 's', dtype: 'BOOL', shape: [], data: new Uint8Array([7]) }] };
        }
        if (path.endsWith('BAD')) {
          throw new Refused('BAD_NAME', 'a "\t"', deep ? 'deep' : 'f');
        }
        if (path.endsWith('ODD')) {
          throw new RangeError('odd');
        }
        """,
    ),
    Skeleton(
        "python",
        "loader.py",
        r"""
    if path.endswith("GOOD"):
        name = "q\" b\\ n\n u\x01 é日😀"
        tensors = [Tensor(name, "U8", (50, 100), b"\7" * 5000), Tensor("s", "BOOL", (), b"\7")]
        return Model("big", 2, tensors)
    if path.endswith("BAD"):
        raise Refused("BAD_NAME", "a \"\t\"", "deep" if deep else "f")
    if path.endswith("ODD"):
        raise IndexError("odd")
""",
    ),
]  # fmt: skip
LANGUAGES = [skeleton.language for skeleton in SKELETONS]


def init(language: str, folder: Path) -> Entry:
    """A fresh skeleton; skips the test where the language's tools are not installed."""
    assert main(["conformance", "init-adapter", language, str(folder)]) == 0
    (entry,) = catalogue.read(folder.parent)
    if missing := catalogue.missing(entry):
        pytest.skip(f"not installed here: {', '.join(missing)}")
    return entry


def ask(entry: Entry, *requests: str) -> list[bytes]:
    """The answer lines, without their ends checked: the parsers do that."""
    lines = "".join(f"{request}\n" for request in requests).replace(" ", "\t").encode()
    done = subprocess.run(
        entry.run, cwd=entry.folder, input=lines, stdout=subprocess.PIPE, timeout=60, check=True
    )
    return done.stdout.splitlines(keepends=True)


def test_there_is_a_skeleton_for_each_template(checkout: Path) -> None:
    there = {path.name for path in (checkout / "conformance/templates").iterdir()}
    assert there == set(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_fresh_skeleton_and_the_doctor(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    entry = init(language, tmp_path / "mine")
    catalogue.build(entry)
    hello, juggle, short, load, again = ask(
        entry,
        "hello 1",
        "juggle",
        "load 7",
        "load 0008 /x data=none level=open",
        "load 9 /x data=hex level=deep new=1",
    )
    assert parse_hello(hello).profiles == {"core", "data"}
    assert json.loads(juggle)["id"] == ""
    for line, ident in ((juggle, ""), (short, "7"), (load, "0008"), (again, "9")):
        assert type(parse_answer(line, ident)).__name__ == "Unsupported"

    capsys.readouterr()
    monkeypatch.chdir(entry.folder)
    assert main(["conformance", "doctor", "--", *entry.run]) == 1
    out = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in out[:6]] == ["ok"] * 6
    assert out[6] == "WRONG  it rejects a file that does not exist"
    assert "unsupported: nothing is loaded yet: fill in " in out[7]
    named = out[7].split()[-1]
    assert any(path.as_posix().endswith(named) for path in entry.folder.rglob("*"))


@pytest.mark.parametrize("skeleton", SKELETONS, ids=LANGUAGES)
def test_a_loader_that_is_filled_in(skeleton: Skeleton, tmp_path: Path) -> None:
    entry = init(skeleton.language, tmp_path / "mine")
    path = entry.folder / skeleton.loader
    before, mark, after = path.read_text("utf-8").rpartition("TODO: read the header")
    head, line = before.rsplit("\n", 1)
    text = f"{head}\n{skeleton.code}\n{line}{mark}{after}"
    if skeleton.language == "c":
        text = text.replace('#include "loader.h"', '#include "loader.h"\n#include <string.h>')
    path.write_text(text, "utf-8")
    catalogue.build(entry)
    requests = [
        "load 1 /x/GOOD data=sha256 level=open",
        "load 2 /x/GOOD data=none level=open",
        "load 3 /x/BAD data=sha256 level=open",
        "load 4 /x/BAD data=sha256 level=deep",
        *([] if skeleton.language == "c" else ["load 5 /x/ODD data=sha256 level=open"]),
    ]
    good, bare, bad, deep, *odd = map(json.loads, lines := ask(entry, *requests))
    for i, line_ in enumerate(lines, 1):
        parse_answer(line_, str(i))

    names = [{"name": NAME, "dtype": "U8", "shape": [50, 100], "nbytes": 5000}]
    names.append({"name": "s", "dtype": "BOOL", "shape": [], "nbytes": 1})
    told = [{"sha256": hashlib.sha256(DATA).hexdigest()}, {"data": "07"}]
    whole = {"status": "accepted", "byte_order": "big", "count": 2}
    assert bare == {"id": "2", **whole, "tensors": names}
    both = [{**name, **content} for name, content in zip(names, told, strict=True)]
    assert good == {"id": "1", **whole, "tensors": both}
    refusal = {"status": "rejected", "error": "BAD_NAME", "message": 'a "\t"'}
    assert bad == {"id": "3", **refusal, "field": "f"}
    assert deep == {"id": "4", **refusal, "field": "deep"}
    assert all(answer["status"] == "internal" for answer in odd)


# Prints the digest of 0, 1, ... 199 bytes, byte i being 7 * i.
HASHERS = {
    "c": """
        #include "sha256.h"
        #include <stdio.h>
        int main(void)
        {
            unsigned char bytes[200], digest[32];
            for (size_t n = 0; n < sizeof bytes; n++) {
                sha256(bytes, n, digest);
                for (int i = 0; i < 32; i++)
                    printf("%02x", (unsigned)digest[i]);
                printf("\\n");
                bytes[n] = (unsigned char)(7 * n);
            }
        }
        """,
    "rust": """
        #[path = "src/sha256.rs"] mod sha256;
        fn main() {
            let bytes: Vec<u8> = (0..200u64).map(|i| (7 * i) as u8).collect();
            for n in 0..200 {
                for byte in sha256::digest(&bytes[..n]) {
                    print!("{byte:02x}");
                }
                println!();
            }
        }
        """,
}
HASHERS["cpp"] = (
    HASHERS["c"]
    .replace('"sha256.h"', '"sha256.hpp"')
    .replace(", digest[32]", "")
    .replace("sha256(bytes, n, digest)", "auto digest = sha256(bytes, n)")
)
COMPILERS = {"c": ("cc", "t.c", "sha256.c"), "cpp": ("c++", "t.cpp"), "rust": ("rustc", "t.rs")}


@pytest.mark.parametrize("language", HASHERS)
def test_the_digests_that_are_written_by_hand(language: str, tmp_path: Path) -> None:
    folder = init(language, tmp_path / "mine").folder
    compiler, source, *more = COMPILERS[language]
    if shutil.which(compiler) is None:
        pytest.skip(f"not installed here: {compiler}")
    (folder / source).write_text(HASHERS[language])
    subprocess.run([compiler, source, *more, "-o", "hasher"], cwd=folder, check=True)
    done = subprocess.run([folder / "hasher"], stdout=subprocess.PIPE, text=True, check=True)
    data = bytes(7 * i % 256 for i in range(200))
    assert done.stdout.split() == [hashlib.sha256(data[:n]).hexdigest() for n in range(200)]


@pytest.mark.parametrize("what", ["file", "full"])
def test_nothing_is_overwritten(what: str, tmp_path: Path, capsys: Out) -> None:
    path = tmp_path / "there"
    if what == "file":
        path.write_text("mine")
    else:
        path.mkdir()
        (path / ".keep").touch()
    assert main(["conformance", "init-adapter", "go", str(path)]) == 2
    error = capsys.readouterr().err
    assert error == f"weig: error: {path} is there already, and is no empty folder\n"
    assert [entry.name for entry in tmp_path.rglob("*")] in (["there"], ["there", ".keep"])


def test_an_empty_folder_is_filled(tmp_path: Path, capsys: Out) -> None:
    assert main(["conformance", "init-adapter", "python", str(tmp_path)]) == 0
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"README.md", "adapter.py", "adapter.toml", "loader.py", "pyproject.toml"}
    assert str(tmp_path / "README.md") in capsys.readouterr().out


def test_an_unknown_language(tmp_path: Path, capsys: Out) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["conformance", "init-adapter", "cobol", str(tmp_path / "x")])
    assert stop.value.code == 2
    assert "cobol" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
