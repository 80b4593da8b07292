"""A real browser for tests: Chromium over the WebDriver protocol, with nothing but this file."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Left": "\ue012", "Up": "\ue013", "Right": "\ue014",
        "Down": "\ue015", "Tab": "\ue004"}  # fmt: skip


class Browser:
    """One window. What the driver refuses raises RuntimeError."""

    def __init__(self, root: str, options: dict[str, Any]) -> None:
        always = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._root = f"{root}/session"
        made = self._ask("POST", "", {"capabilities": {"alwaysMatch": always}})
        self._root += f"/{made['sessionId']}"

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._root + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def open(self, path: Path, address: str = "") -> None:
        self._ask("POST", "/url", {"url": "about:blank"})  # or a new # alone would load nothing
        self._ask("POST", "/url", {"url": path.as_uri() + address})

    def run(self, script: str, *args: Any) -> Any:
        """What a script returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": args})

    def press(self, *keys: str) -> None:
        """Keys, one after another, where the focus is."""
        steps = [
            {"type": kind, "value": KEYS.get(key, key)}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": steps}]})

    def devtools(self, command: str, **params: Any) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def complaints(self) -> list[str]:
        """What the browser logged since the last time: errors, refused loads."""
        entries = self._ask("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def close(self) -> None:
        self._ask("DELETE", "")


@contextlib.contextmanager
def started(folder: Path, width: int = 1200, height: int = 900) -> Iterator[Browser]:
    """A browser with a window of that size in CSS pixels; skips the test where there is none."""
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or chromium is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    with subprocess.Popen(
        [driver, "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            port = _port(process)
            options = {
                "binary": chromium,
                "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"],
                "mobileEmulation": {
                    "deviceMetrics": {"width": width, "height": height, "pixelRatio": 1.0}
                },
            }
            browser = Browser(f"http://127.0.0.1:{port}", options)
            yield browser
            browser.close()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _port(process: subprocess.Popen[str]) -> int:
    """The port that the driver says it listens on."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"started successfully on port (\d+)", line):
            return int(found[1])
    raise RuntimeError("chromedriver did not start")
