"""Tiny adapters for a toy format, each with one defined behaviour.

Run as a script: ``python -I -S miniatures.py BEHAVIOUR``. A toy file is good where it starts with
GOOD; its one tensor ``w`` is the rest of it, a matrix of U8 with two rows. Behaviours show at bad
files (they start with EVIL), where nothing else is said.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

HELLO = {
    "protocol": 1,
    "loader": "mini",
    "version": "1",
    "language": "python",
    "spec": ["1"],
    "profiles": ["core", "data"],
}
state = {"bad": 0}


def right(ident, path, keys):
    """The answer that is expected."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        return {"id": ident, "status": "rejected", "error": "IO", "message": str(error)}
    if data[:4] != b"GOOD":
        return {"id": ident, "status": "rejected", "error": "BAD"}
    return accepted(ident, data[4:], keys)


def accepted(ident, body, keys, **more):
    tensor = {"name": "w", "dtype": "U8", "shape": [2, len(body) // 2], "nbytes": len(body)}
    if keys.get("data") == "hex":
        tensor["data"] = body.hex()
    elif keys.get("data") == "sha256":
        tensor["sha256"] = hashlib.sha256(body).hexdigest()
    answer = {"id": ident, "status": "accepted", "byte_order": "little", "count": 1}
    return {**answer, "tensors": [{**tensor, **more}]}


def say(answer):
    print(json.dumps(answer), flush=True)


def raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def text(answer):
    return json.dumps(answer).encode()


def swap(body, unit):
    return b"".join(body[i : i + unit][::-1] for i in range(0, len(body), unit))


def die(number):
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    time.sleep(60)


def leave_child(ident):
    """A child that holds the pipes open and outlives its parent; its number goes to stderr."""
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
    print("child", child.pid, file=sys.stderr, flush=True)
    os._exit(0)


def write_to(path, how):
    with open(path, "r+b") as file:
        if how == "byte":
            file.seek(2)
            file.write(b"x")
        elif how == "same":
            file.write(b"E")
        else:
            file.truncate(1)


def allocate(mebibytes):
    block = bytearray(mebibytes << 20)
    for i in range(0, len(block), 4096):
        block[i] = 1
    return len(block)


# What is done at a bad file, instead of an answer: (id, path, keys, right answer).
AT_BAD = {
    "segv": lambda i, p, k, a: die(signal.SIGSEGV),
    "bus": lambda i, p, k, a: die(signal.SIGBUS),
    "half": lambda i, p, k, a: (raw(b'{"id": "'), die(signal.SIGABRT)),
    "exit1": lambda i, p, k, a: os._exit(1),
    "exit0": lambda i, p, k, a: os._exit(0),
    "shell-segv": lambda i, p, k, a: os._exit(139),
    "segv-after": lambda i, p, k, a: (say(a), die(signal.SIGSEGV)),
    "hang": lambda i, p, k, a: time.sleep(60),
    "half-hang": lambda i, p, k, a: (raw(b'{"id": "'), time.sleep(60)),
    "chatty-trace": lambda i, p, k, a: (sys.stderr.write("noise " * 300_000), 1 // 0),
    "trace": lambda i, p, k, a: 1 // 0,
    "words": lambda i, p, k, a: raw(b"Segmentation fault (not really)\n"),
    "empty-line": lambda i, p, k, a: (raw(b"\n"), say(a)),
    "twice": lambda i, p, k, a: (say(a), say(a)),
    "twice-late": lambda i, p, k, a: (say(a), time.sleep(0.05), say(a)),
    "wrong-id": lambda i, p, k, a: say({**a, "id": "9999"}),
    "number-id": lambda i, p, k, a: say({**a, "id": int(i)}),
    "no-status": lambda i, p, k, a: say({"id": i}),
    "new-status": lambda i, p, k, a: say({"id": i, "status": "fine"}),
    "no-code": lambda i, p, k, a: say({"id": i, "status": "rejected"}),
    "huge": lambda i, p, k, a: [raw(b"x" * 65536) for _ in range(100_000)],
    "not-utf8": lambda i, p, k, a: raw(text(a)[:-1] + b', "message": "\xff"}\n'),
    "surrogate": lambda i, p, k, a: raw(text(a)[:-1] + b', "message": "\\ud800"}\n'),
    "nan": lambda i, p, k, a: raw(text(a)[:-1] + b', "x": NaN}\n'),
    "duplicate-key": lambda i, p, k, a: raw(text(a)[:-1] + b', "error": "BAD"}\n'),
    "deep-nest": lambda i, p, k, a: raw(b"[" * 200_000 + b"\n"),
    "crlf": lambda i, p, k, a: raw(text(a) + b"\r\n"),
    "bom": lambda i, p, k, a: raw(b"\xef\xbb\xbf" + text(a) + b"\n"),
    "no-lf": lambda i, p, k, a: (raw(text(a)), os._exit(0)),
    "list": lambda i, p, k, a: say([a]),
    "internal": lambda i, p, k, a: say({"id": i, "status": "internal", "message": "oops"}),
    "unsupported": lambda i, p, k, a: say({"id": i, "status": "unsupported"}),
    "code": lambda i, p, k, a: say({**a, "error": "WORSE"}),
    "accept": lambda i, p, k, a: say(accepted(i, b"", k)),
    "write-byte": lambda i, p, k, a: (write_to(p, "byte"), say(a)),
    "write-same": lambda i, p, k, a: (write_to(p, "same"), say(a)),
    "write-less": lambda i, p, k, a: (write_to(p, "less"), say(a)),
    "unlink": lambda i, p, k, a: (os.unlink(p), say(a)),
    "litter": lambda i, p, k, a: (open(p + ".index", "w").close(), say(a)),
    "child": lambda i, p, k, a: leave_child(i),
    "deaf": lambda i, p, k, a: (say(a), os.close(0), time.sleep(60)),
    "mute": lambda i, p, k, a: (os.close(1), time.sleep(60)),
    "chatty": lambda i, p, k, a: (sys.stderr.write("noise " * 300_000), say(a)),
    "memory": lambda i, p, k, a: (allocate(400), say(a)),
}

# What is answered to a good file instead of the right answer: (id, body, keys).
AT_GOOD = {
    "reject": lambda i, b, k: {"id": i, "status": "rejected", "error": "BAD", "message": "no"},
    "no-count": lambda i, b, k: {x: y for x, y in accepted(i, b, k).items() if x != "count"},
    "no-tensors": lambda i, b, k: {**accepted(i, b, k), "tensors": []},
    "count-2": lambda i, b, k: {**accepted(i, b, k), "count": 2},
    "other-order": lambda i, b, k: {**accepted(i, b, k), "byte_order": "big"},
    "float-count": lambda i, b, k: {**accepted(i, b, k), "count": 1.0},
    "swapped-2": lambda i, b, k: accepted(i, swap(b, 2), k),
    "swapped-4": lambda i, b, k: accepted(i, swap(b, 4), k),
    "columns": lambda i, b, k: accepted(
        i, bytes(b[r * (len(b) // 2) + c] for c in range(len(b) // 2) for r in (0, 1)), k
    ),
    "zeros": lambda i, b, k: accepted(i, bytes(len(b)), k),
    "no-digest": lambda i, b, k: accepted(i, b, {}),
    "hex-anyway": lambda i, b, k: accepted(i, b, {"data": "hex"}),
    "flat": lambda i, b, k: accepted(i, b, k, shape=[len(b)]),
    "dtype": lambda i, b, k: accepted(i, b, k, dtype="I8"),
    "nbytes": lambda i, b, k: accepted(i, b, k, nbytes=len(b) - 1),
    "name": lambda i, b, k: accepted(i, b, k, name="w\u202e\n"),
    "mapped": lambda i, b, k: accepted(i, b, k, backing="mmap", align=64),
    "mapped-32": lambda i, b, k: accepted(i, b, k, backing="mmap", align=32),
    "mapped-48": lambda i, b, k: accepted(i, b, k, backing="mmap", align=48),
    "mapped-odd": lambda i, b, k: accepted(i, b, k, backing="ram", align=64),
    "mapped-mute": lambda i, b, k: accepted(i, b, k),
    "rank-1": lambda i, b, k: {"id": i, "status": "unsupported"},
    "size-8": lambda i, b, k: {"id": i, "status": "rejected", "error": "BIG"},
    "rank-1-wraps": lambda i, b, k: accepted(i, bytes(len(b)), k),
}

HELLOS = {
    "mapped": {**HELLO, "profiles": ["core", "data", "mmap"]},
    "mapped-32": {**HELLO, "profiles": ["core", "data", "mmap"]},
    "mapped-48": {**HELLO, "profiles": ["core", "data", "mmap"]},
    "mapped-odd": {**HELLO, "profiles": ["core", "data", "mmap"]},
    "mapped-mute": {**HELLO, "profiles": ["core", "data", "mmap"]},
    "only-core": {**HELLO, "profiles": ["core"]},
    "nothing": {**HELLO, "profiles": []},
    "shouts": {**HELLO, "profiles": ["core", "DATA"]},
    "only-f32": {**HELLO, "dtypes": ["F32"]},
    "rank-1": {**HELLO, "limits": {"max_rank": 1}},
    "rank-1-can": {**HELLO, "limits": {"max_rank": 1}},
    "rank-1-wraps": {**HELLO, "limits": {"max_rank": 1}},
    "size-8": {**HELLO, "limits": {"max_size": 8}},
    "hello-2": {**HELLO, "protocol": 2},
    "hello-mute": {key: HELLO[key] for key in HELLO if key != "profiles"},
    "hello-list": [HELLO],
}


def load(behaviour, ident, path, keys):
    answer = right(ident, path, keys)
    bad = answer["status"] == "rejected"
    if behaviour == "sticky" and (state["bad"] or bad):
        state["bad"] += 1
        say(answer if state["bad"] == 1 else {"id": ident, "status": "rejected", "error": "BAD"})
    elif behaviour == "dies-later":
        if state["bad"]:
            die(signal.SIGSEGV)
        state["bad"] += bad
        say(answer)
    elif behaviour == "once":
        say(answer)
        os._exit(0)
    elif behaviour == "only-core" and keys["data"] != "none":
        say({"id": ident, "status": "internal", "message": "never said that it could do that"})
    elif bad and behaviour in AT_BAD:
        AT_BAD[behaviour](ident, path, keys, answer)
    elif not bad and behaviour in AT_GOOD:
        with open(path, "rb") as file:
            say(AT_GOOD[behaviour](ident, file.read()[4:], keys))
    else:
        say(answer)


def facts(found):
    return found.st_size, found.st_mtime_ns


def hold(behaviour, verb, ident, path, keys):
    """The requests about a file that is kept open."""
    if verb == "open":
        file = state["file"] = open(path, "rb")  # noqa: SIM115
        state["path"], state["facts"] = path, facts(os.fstat(file.fileno()))
        body = file.read()[4:]
        state["body"] = body if keys["via"] == "read" else None
        answer = accepted(ident, body, keys)
        return say({**answer, "count": 3} if behaviour == "held-miscounts" else answer)
    if verb == "check":
        same = facts(os.fstat(state["file"].fileno())) == state["facts"]
        if behaviour == "held-by-path":
            same = os.path.exists(path) and facts(os.stat(path)) == state["facts"]
        if behaviour in ("held-blind", "held-nervous"):
            same = behaviour == "held-blind"
        if behaviour == "held-dies" and not same:
            die(signal.SIGBUS)
        code = "WORSE" if behaviour == "held-code" else "CHANGED"
        no = {"id": ident, "status": "rejected", "error": code}
        return say({"id": ident, "status": "unmodified"} if same else no)
    if behaviour == "held-reopens":
        return say(right(ident, path, keys))
    body = state["body"]
    if body is None:
        state["file"].seek(4)
        body = state["file"].read()
    return say(accepted(ident, body, keys))


def main(behaviour):
    if behaviour == "banner":
        print("mini 1.0, ready", flush=True)
    if behaviour == "gone":
        sys.exit("no such model")
    if behaviour == "silent":
        time.sleep(60)
    lines = sys.stdin.read().splitlines() if behaviour == "buffered" else sys.stdin
    for line in lines:
        fields = line.rstrip("\n").split("\t")
        if fields[0] == "hello":
            if behaviour == "hello-pretty":
                print(json.dumps(HELLO, indent=2), flush=True)
            elif behaviour == "hello-repr":
                print(HELLO, flush=True)
            elif behaviour.startswith("held"):
                say({**HELLO, "profiles": ["core", "data", "held-mmap", "held-read"]})
            else:
                say(HELLOS.get(behaviour, HELLO))
        elif fields[0] == "load":
            if behaviour == "relative":
                fields[2] = os.path.join("models", fields[2].lstrip("/"))
            keys = dict(field.split("=", 1) for field in fields[3:])
            load(behaviour, fields[1], fields[2], keys)
        elif fields[0] in ("open", "check", "access") and behaviour.startswith("held"):
            named = fields[0] == "open"
            keys = dict(field.split("=", 1) for field in fields[2 + named :])
            hold(behaviour, fields[0], fields[1], fields[2] if named else state["path"], keys)
        elif behaviour != "dies-of-verb":
            say({"id": fields[1], "status": "unsupported"})
        else:
            raise KeyError(fields[0])
    if behaviour == "endless":
        time.sleep(60)
    if behaviour == "dies-at-end":
        die(signal.SIGABRT)


if __name__ == "__main__":
    main(sys.argv[1])
