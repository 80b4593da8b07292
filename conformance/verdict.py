"""Compares an answer with what its case expects, and says *where* they differ."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from weig.conformance.manifest import Case, Want, WantTensor
from weig.conformance.outcome import Difference, Outcome
from weig.conformance.protocol import (
    ALIGN_MAPPED,
    Accepted,
    Answer,
    Hello,
    Internal,
    Rejected,
    TensorAnswer,
    Unmodified,
    Unsupported,
)
from weig.conformance.text import cut

__all__ = ["UNMODIFIED", "Verdict", "judge", "judge_check", "unclaimed"]

MAX_DIFFERENCES = 12
SWAP_UNITS = (2, 4, 8, 16)
UNMODIFIED = "unmodified"  # among the right answers to a check


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one answer, with what is needed to see why."""

    outcome: Outcome
    detail: str = ""
    differences: tuple[Difference, ...] = ()


def unclaimed(case: Case, hello: Hello) -> str | None:
    """Why a case is not sent to an adapter that does not claim it, in words; None where it is sent.

    Dtypes excuse a loader only from what it would have to *accept*: a bad file has to be refused by
    anybody. What is past a limit is sent: see `_beyond`.
    """
    profiles = case.profiles | {"deep"} if case.level == "deep" else case.profiles
    missing = sorted(profiles - hello.profiles)
    if missing:
        return f"profile {', '.join(missing)}"
    return None if case.expect == "reject" else _lacking(case, hello)


def _lacking(case: Case, hello: Hello) -> str | None:
    """The dtypes of a case that the adapter says it cannot do."""
    if hello.dtypes is None or case.dtypes <= hello.dtypes:
        return None
    return f"dtype {', '.join(sorted(case.dtypes - hello.dtypes))}"


def _beyond(case: Case, hello: Hello) -> str | None:
    """The numbers of a case that are past the limits of the adapter.

    They excuse a refusal, not a wrong answer: who cuts a size to 32 bits is not to hide behind one.
    """
    for key, value in case.limits.items():
        if key in hello.limits and value > hello.limits[key]:
            return f"{key} {value} (its limit is {hello.limits[key]})"
    return None


def judge(case: Case, answer: Answer, hello: Hello, with_content: bool) -> Verdict:
    """The verdict on one answer. ``with_content`` tells whether digests were asked for."""
    if isinstance(answer, Internal):
        return Verdict(Outcome.INTERNAL, describe(answer))
    if case.expect == "either":
        return Verdict(Outcome.PASS)
    if case.expect == "reject":
        return _judge_refusal(case, answer, hello)
    if not isinstance(answer, Accepted):
        if isinstance(answer, Unsupported | Rejected) and (beyond := _beyond(case, hello)):
            return Verdict(Outcome.NOT_CLAIMED, f"{beyond}: {describe(answer)}")
        return _wrong_verdict("accepted", answer)
    found = tuple(_differences(case, answer, hello, with_content))
    if not found:
        return Verdict(Outcome.PASS)
    return Verdict(Outcome.WRONG_CONTENT, "", found[:MAX_DIFFERENCES])


def judge_check(right: tuple[str, ...], answer: Answer) -> Verdict:
    """The verdict on the answer to ``check``; ``right`` is what `Held.check` holds."""
    codes = [word for word in right if word != UNMODIFIED]
    want = " or ".join([f"rejected with {code}" for code in codes])
    if UNMODIFIED in right:
        want = f"{UNMODIFIED}, or {want}" if codes else UNMODIFIED
    match answer:
        case Internal():
            return Verdict(Outcome.INTERNAL, describe(answer))
        case Unmodified() if UNMODIFIED in right:
            return Verdict(Outcome.PASS)
        case Rejected() if answer.error in codes:
            return Verdict(Outcome.PASS)
        case Rejected() if codes:
            return Verdict(
                Outcome.WRONG_CODE, "", (Difference("error", " or ".join(codes), describe(answer)),)
            )
    return _wrong_verdict(want, answer)


def _judge_refusal(case: Case, answer: Answer, hello: Hello) -> Verdict:
    want = f"rejected with {' or '.join(case.errors) or 'any code'}"
    if isinstance(answer, Unsupported):
        excuse = _lacking(case, hello) or _beyond(case, hello)
        if excuse:
            return Verdict(Outcome.NOT_CLAIMED, f"{excuse}: {describe(answer)}")
    if not isinstance(answer, Rejected):
        return _wrong_verdict(want, answer)
    if case.errors and answer.error not in case.errors:
        difference = Difference("error", " or ".join(case.errors), describe(answer))
        return Verdict(Outcome.WRONG_CODE, "", (difference,))
    return Verdict(Outcome.PASS)


def _wrong_verdict(want: str, answer: Answer) -> Verdict:
    return Verdict(Outcome.WRONG_VERDICT, "", (Difference("status", want, describe(answer)),))


def describe(answer: Answer) -> str:
    """An answer in a few words."""
    match answer:
        case Accepted():
            return f"accepted, {answer.byte_order} endian, {answer.count} tensors"
        case Rejected():
            where = f" at {answer.field}" if answer.field else ""
            return cut(f"rejected with {answer.error}{where}: {answer.message}")
        case Unsupported():
            return cut(f"unsupported: {answer.message}")
        case Internal():
            return cut(f"internal error: {answer.message}")
        case Unmodified():
            return UNMODIFIED


def _differences(
    case: Case, got: Accepted, hello: Hello, with_content: bool
) -> Iterator[Difference]:
    want = case.want
    if want is None:
        return
    if got.byte_order != want.byte_order:
        yield Difference("byte_order", want.byte_order, got.byte_order)
    if got.count != want.count:
        yield Difference("count", str(want.count), str(got.count))
    if len(got.tensors) != want.count:
        yield Difference("tensors", f"{want.count} of them", f"{len(got.tensors)} of them")
    yield from _order(want, got)
    for i, (wanted, tensor) in enumerate(zip(want.tensors, got.tensors, strict=False)):
        yield from _tensor(f"tensors[{i}]", wanted, tensor, with_content)
        if "mmap" in hello.profiles:
            yield from _mapped(f"tensors[{i}]", tensor)


def _order(want: Want, got: Accepted) -> Iterator[Difference]:
    wanted = [tensor.name for tensor in want.tensors]
    names = [tensor.name for tensor in got.tensors]
    if wanted != names and sorted(wanted) == sorted(names):
        yield Difference("tensors", "in file order", "the same names in another order")


def _tensor(
    at: str, want: WantTensor, got: TensorAnswer, with_content: bool
) -> Iterator[Difference]:
    if got.name != want.name:
        yield Difference(f"{at}.name", cut(want.name), cut(got.name))
    if got.dtype != want.dtype:
        yield Difference(f"{at}.dtype", want.dtype, cut(got.dtype))
    if got.shape != want.shape:
        yield Difference(f"{at}.shape", str(list(want.shape)), cut(str(list(got.shape))))
    if got.nbytes != want.nbytes:
        yield Difference(f"{at}.nbytes", str(want.nbytes), str(got.nbytes))
    elif with_content and want.sha256 is not None:
        yield from _content(at, want, got)


def _content(at: str, want: WantTensor, got: TensorAnswer) -> Iterator[Difference]:
    wanted = f"bytes with the SHA-256 {want.sha256}"
    if got.data is not None:
        if len(got.data) != got.nbytes:
            yield Difference(f"{at}.data", f"{got.nbytes} bytes", f"{len(got.data)} bytes")
        elif hashlib.sha256(got.data).hexdigest() != want.sha256:
            hint = _explain(got.data, want)
            yield Difference(f"{at}.data", wanted, got.data[:32].hex(" ") + hint)
    elif got.sha256 is None:
        yield Difference(f"{at}.sha256", wanted, "neither sha256 nor data")
    if got.sha256 is not None and got.sha256 != want.sha256:
        yield Difference(f"{at}.sha256", str(want.sha256), got.sha256)


def _explain(data: bytes, want: WantTensor) -> str:
    """The usual mistake that would make these bytes of the right ones, where it is one."""
    for unit in SWAP_UNITS:
        if len(data) % unit == 0 and _is(want, swapped(data, unit)):
            return f" (right, but in the other byte order: units of {unit} bytes)"
    if _is(want, transposed(data, want.shape)):
        return " (right, but column by column: the order is row-major)"
    return ""


def _is(want: WantTensor, data: bytes) -> bool:
    return hashlib.sha256(data).hexdigest() == want.sha256


def swapped(data: bytes, unit: int) -> bytes:
    """The bytes with each group of ``unit`` reversed; the length is a multiple of ``unit``."""
    result = bytearray(len(data))
    for i in range(unit):
        result[i::unit] = data[unit - 1 - i :: unit]
    return bytes(result)


def transposed(data: bytes, shape: tuple[int, ...]) -> bytes:
    """Column-major bytes of an array of this shape put into row-major order."""
    count = 1
    for dim in shape:
        count *= dim
    if count == 0 or len(data) % count:
        return data
    size = len(data) // count
    offsets = [0]
    stride = size
    for dim in shape:  # the first index runs slowest in the result and fastest in the data
        offsets = [at + stride * i for at in offsets for i in range(dim)]
        stride *= dim
    return b"".join(data[at : at + size] for at in offsets)


def _mapped(at: str, got: TensorAnswer) -> Iterator[Difference]:
    """What the profile ``mmap`` adds: where the tensor's memory comes from, and how aligned."""
    if got.backing is None:
        yield Difference(f"{at}.backing", "said, for the profile mmap is claimed", "missing")
    if got.align is None:
        yield Difference(f"{at}.align", "said, for the profile mmap is claimed", "missing")
    elif got.backing == "mmap" and got.nbytes and got.align < ALIGN_MAPPED:
        yield Difference(f"{at}.align", f"at least {ALIGN_MAPPED}", str(got.align))
