"""Headless Chromium, driven by the DevTools protocol over a pipe: no port, no library."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


class Browser:
    """One tab. ``complaints`` are errors on its console, ``requests`` the addresses that it asked for."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from, self._rest, self._number = to_browser, from_browser, b"", 0
        self._session = ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        own, message = self._number, {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == own:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, address: str, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Leave the last page, forget what it did, open this one and wait until it has loaded."""
        self._go("about:blank")
        self.complaints.clear()
        self.requests.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._go(address)

    def value(self, script: str) -> Any:
        """Evaluate an expression (awaiting a promise) in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Move the mouse, press or release it: ``mouseMoved``, ``mousePressed``, ``mouseReleased``."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, name: str, code: int) -> None:
        """Press a key and let it go, given its name and its number: ``Tab`` 9, ``ArrowRight`` 39."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def picture(self, file: Path) -> None:
        """Save the whole page as PNG."""
        shown = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shown["data"]))

    def printed(self, file: Path) -> None:
        """Save the page as PDF."""
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))

    def _go(self, address: str) -> None:
        self._loaded = 0
        self.call("Page.navigate", url=address)
        while not self._loaded:
            self._next()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._from, 1 << 20)
            assert more, "Chromium has ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        said = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded += 1
            case "Runtime.exceptionThrown":
                self.complaints.append(str(said["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if said["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(said["args"]))
            case "Log.entryAdded" if said["entry"]["level"] in ("error", "warning"):
                self.complaints.append(str(said["entry"]))
            case "Network.requestWillBeSent":
                self.requests.append(said["request"]["url"])
        return message


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start Chromium with an empty profile, and end it."""
    assert CHROMIUM is not None
    ours, its = os.pipe(), os.pipe()
    reads, writes = its[0], ours[1]

    def hand_over() -> None:  # it reads from descriptor 3 and writes to 4
        ends = os.dup(reads), os.dup(writes)
        for end, place in zip(ends, (3, 4), strict=True):
            os.dup2(end, place)
            os.set_inheritable(place, True)

    command = [CHROMIUM, *QUIET, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, preexec_fn=hand_over, close_fds=False, stdout=quiet, stderr=quiet)
    os.close(reads)
    os.close(writes)
    try:
        yield Browser(its[1], ours[0])
    finally:
        process.kill()
        process.wait()
        os.close(its[1])
        os.close(ours[0])
