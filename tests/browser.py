"""A real browser for tests: Chromium without a window, spoken to by its own protocol over two pipes. No package needed.

    with open_browser() as browser:
        browser.open(path)
        browser.evaluate("document.title")

`KERNELGRAPH_BROWSER` names another one. Where there is none, tests are skipped with the reason, unless
`KERNELGRAPH_REQUIRE_BROWSER` is set, as in continuous integration.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 60.0  # for one answer, on a busy machine


def browser_path() -> str | None:
    asked = os.environ.get("KERNELGRAPH_BROWSER")
    return asked or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. errors: what its scripts raised or logged as errors; requests: all addresses that it asked for."""

    def __init__(self, path: str, profile: str) -> None:
        ours, its = os.pipe(), os.pipe()  # to it, from it
        script = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        flags += ["--no-first-run", "--disable-background-networking", "--disable-component-update", "about:blank"]
        command = ["bash", "-c", script, "bash", str(ours[0]), str(its[1]), path, *flags]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=(ours[0], its[1]), stdout=quiet, stderr=quiet, stdin=quiet)
        os.close(ours[0])
        os.close(its[1])
        self._to, self._from = ours[1], its[0]
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def open(self, path: Path, width: int = 1400, height: int = 900, dark: bool = False, fragment: str = "") -> None:
        """Show a file in a window of this size, and wait until its scripts have run."""
        self.resize(width, height, dark)
        self.visit(path.resolve().as_uri() + fragment)
        self.until("document.readyState === 'complete' && window.kernelgraph !== undefined")

    def visit(self, address: str) -> None:
        """Go to an address, and do not wait."""
        self.errors.clear()
        self.requests.clear()
        self._ask("Page.navigate", url="about:blank")
        self._ask("Page.navigate", url=address)

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, as JSON."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        end = time.monotonic() + SECONDS
        while not self.evaluate(expression):
            assert time.monotonic() < end and not self.errors, (expression, self.errors)
            time.sleep(0.02)

    def mouse(self, x: float, y: float, *, click: bool = False) -> None:
        """Move the mouse there, and press its button if asked to."""
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for what in ("mousePressed", "mouseReleased") if click else ():
            self._ask("Input.dispatchMouseEvent", type=what, x=x, y=y, button="left", clickCount=1)

    def drag(self, x: float, y: float, right: float, down: float) -> None:
        """Move the mouse there, press, move it on, and let go."""
        steps = [("mouseMoved", 0.0), ("mousePressed", 0.0), ("mouseMoved", 0.5), ("mouseMoved", 1.0)]
        for what, way in [*steps, ("mouseReleased", 1.0)]:
            at = {"x": x + right * way, "y": y + down * way}
            self._ask("Input.dispatchMouseEvent", type=what, button="left", buttons=1, clickCount=1, **at)

    def download_to(self, folder: Path) -> None:
        """What the page saves goes into this folder."""
        self._ask("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Until something outside of the page is so."""
        end = time.monotonic() + SECONDS
        while not done():
            assert time.monotonic() < end and not self.errors, self.errors
            time.sleep(0.02)

    def key(self, key: str, text: str = "") -> None:
        more = {"text": text} if text else {}
        self._ask("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self._ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        self._ask("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """What the window shows, as PNG: for people."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def _ask(self, method: str, **given: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        method, found = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(found["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and found["type"] == "error":
            self.errors.append(json.dumps(found["args"]))
        elif method == "Log.entryAdded" and found["entry"]["level"] == "error":
            self.errors.append(json.dumps(found["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])

    def _next(self) -> Any:
        while b"\0" not in self._buffer:
            read = os.read(self._from, 1 << 20)
            assert read, "the browser has ended"
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


@contextmanager
def open_browser() -> Iterator[Browser]:
    path = browser_path()
    if path is None:
        reason = "no Chromium: apt-get install chromium, or set KERNELGRAPH_BROWSER to the path of one"
        if os.environ.get("KERNELGRAPH_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(path, profile)
        try:
            yield browser
        finally:
            browser.close()
