"""Servers for this machine's own browser: on 127.0.0.1, under that name alone; one hands a trace to ui.perfetto.dev."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from vflsim.errors import ResultsError, VflsimError
from vflsim.results.store.folder import RUN, SCENARIO, SUMMARIES
from vflsim.results.store.pages import read_scenario

ADDRESS = "127.0.0.1"
MOST = 32
"""Connections at a time, each of which has a thread: a browser opens about six to a page."""
SILENCE_S = 30.0
"""Seconds without a byte after which a connection ends."""


class LocalServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1; ``port`` 0 takes any free one. Raises ResultsError if it is taken, with the remedy.

    Of more than ``MOST`` connections the oldest ends: those that send nothing, or little by little, keep nobody out.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 4 * MOST  # else connections that come at once wait for seconds to be asked for again

    def __init__(self, port: int, handler: type[LocalHandler], remedy: str) -> None:
        self._open: dict[socket.socket, None] = {}
        self._changing = threading.Lock()
        try:
            super().__init__((ADDRESS, port), handler)
        except OSError as error:
            raise ResultsError(f"port {port}: {error.strerror or error}", ADDRESS, "a free port", remedy) from error

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; end the oldest connection if there are too many."""
        with self._changing:
            self._open[request] = None
            if len(self._open) > MOST:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):  # its thread may just have ended it
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._changing:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what went wrong, unless the browser has hung up or fallen silent."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class LocalHandler(ABC, BaseHTTPRequestHandler):
    """Answers GET, if the request names this machine: another name means that a web site's name leads here."""

    server_version, sys_version, timeout = "vflsim", "", SILENCE_S
    server: LocalServer

    def do_GET(self) -> None:
        """Answer, or refuse a request that came under another name."""
        if self.allowed():
            self.respond()

    @abstractmethod
    def respond(self) -> None:
        """Answer a request for ``self.path``."""

    def allowed(self) -> bool:
        """Whether the request names this machine; else refuse it."""
        names = {f"{name}:{self.server.port}" for name in (ADDRESS, "localhost")}
        if self.headers.get("Host") in names:
            return True
        self.answer("no such host here", "text/plain", status=421)
        return False

    def answer(self, body: str | bytes, kind: str, headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        """Send an answer."""
        content = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        fixed = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        named = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content))}
        for name, value in {**fixed, **named, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing: the terminal is the study's."""


VIEWER = "https://ui.perfetto.dev"
PORT = 9001
"""The only port from which the viewer may fetch."""


def served(trace: Path, port: int) -> LocalServer:
    """Make a server that gives the trace to the viewer once; its ``serve_forever`` returns after that.

    Raises ResultsError if the port is taken.
    """

    class Trace(LocalHandler):
        """Has the one file, for the viewer's origin."""

        def respond(self) -> None:
            """Send the file and end the server."""
            if self.path != f"/{trace.name}":
                return self.answer("no such page here", "text/plain", status=404)
            self.send_response(200)
            for name, value in self._permission().items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(trace.stat().st_size))
            self.end_headers()
            with open(trace, "rb") as file:
                shutil.copyfileobj(file, self.wfile)
            threading.Thread(target=self.server.shutdown).start()

        def do_OPTIONS(self) -> None:
            """Let the viewer's page ask a machine in a private network."""
            if self.allowed():
                self.answer("", "text/plain", self._permission(), status=204)

        def _permission(self) -> dict[str, str]:
            return {"Access-Control-Allow-Origin": VIEWER, "Access-Control-Allow-Private-Network": "true"}

    return LocalServer(port, Trace, f"end the program that uses it: {VIEWER} fetches from port {PORT} alone")


def address(trace: Path, port: int) -> str:
    """Return the viewer's address with that of the trace."""
    return f"{VIEWER}/#!/?url=http://{ADDRESS}:{port}/{trace.name}"


# --- watch ------------------------------------------------------------------------------------------------------------


_SHARE = 4
"""Least time between two pages, in durations of making one: a study needs the processor, too."""
_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "Referrer-Policy": "no-referrer"}


class Follower:
    """The page of a results folder, made anew when its runs have changed. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._making = folder, threading.Lock()
        self._page, self._made_of, self._next = "", "", 0.0

    def state(self) -> str:
        """Return a text that changes when a new page would differ and may be made."""
        now = self._content()
        soon = time.monotonic() < self._next and not self._complete()
        return (self._made_of or now) if soon else now

    def progress(self) -> str:
        """Say how many runs have finished."""
        done, wanted = len(self._runs()), self._wanted()
        if self._complete():
            return f"All {done} runs have ended."
        return f"{done}{'' if wanted is None else f' of {wanted}'} runs have ended; this page follows the others."

    def page(self) -> str:
        """Return the page, made anew if the folder has changed and the last one is not too recent."""
        with self._making:
            state = self.state()
            if state != self._made_of or not self._page:
                began = time.monotonic()
                self._page, self._made_of = self._made(), state
                now = time.monotonic()
                self._next = now + _SHARE * (now - began)
            return self._page

    def _complete(self) -> bool:
        wanted = self._wanted()
        return wanted is not None and len(self._runs()) >= wanted

    def _made(self) -> str:
        from vflsim.reporting.page import page, waiting  # seconds, for which the address need not wait
        from vflsim.results.read import Results

        name = self._folder.resolve().name
        if not self._runs():
            return waiting(name, [self.progress(), "The report appears when the first run has ended."])
        try:
            return page([Results.open(self._folder)], brief=True, live=True)
        except VflsimError as error:  # a file that the study is just replacing, or a damaged one
            return waiting(name, ["The results cannot be read at the moment.", *str(error).splitlines()])

    def _runs(self) -> list[Path]:
        return sorted(self._folder.glob(f"*/seed-*/{RUN}"))

    def _content(self) -> str:
        """Digest the names, sizes and times of the files that end a run or a study."""
        places = [*self._runs(), *(self._folder / name for name in (SCENARIO, *SUMMARIES))]
        facts = []
        for place in places:
            try:
                status = place.stat()
            except OSError:
                continue
            facts.append((str(place), status.st_mtime_ns, status.st_size))
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def _wanted(self) -> int | None:
        """Count the runs that the scenario asks for; None if that is unknown."""
        try:
            scenario = read_scenario(self._folder / SCENARIO)
            seeds = scenario.get("seeds", [0])
            first, _, end = str(seeds).partition(":")
            return len(scenario["protocols"]) * (len(seeds) if isinstance(seeds, list) else int(end) - int(first))
        except (VflsimError, ValueError):
            return None


def watched(folder: Path, port: int) -> LocalServer:
    """Make the server of a folder's page; its ``serve_forever`` runs it. Raises ResultsError if the port is taken."""
    follower = Follower(folder)

    class Page(LocalHandler):
        """Has the page, and the state that it asks for."""

        def respond(self) -> None:
            """Answer ``/`` and ``/state``."""
            if self.path == "/":
                self.answer(follower.page(), "text/html", _HEADERS)
            elif self.path == "/state":
                answer = {"state": follower.state(), "progress": follower.progress()}
                self.answer(json.dumps(answer), "application/json")
            else:
                self.answer("no such page here", "text/plain", status=404)

    return LocalServer(port, Page, "end the program that uses it, or choose another --port")
