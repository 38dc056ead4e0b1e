"""``vflsim watch``: the report of a folder as a page that follows the study that is writing it."""

import hashlib
import json
import threading
import time
from pathlib import Path

from vflsim.errors import VflsimError
from vflsim.reporting.serving import LocalHandler, LocalServer
from vflsim.results.store.json_files import read_scenario
from vflsim.results.store.write import RUN, SCENARIO, SUMMARIES

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
                found = place.stat()
            except OSError:
                continue
            facts.append((str(place), found.st_mtime_ns, found.st_size))
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def _wanted(self) -> int | None:
        """Count the runs that the scenario asks for; None if that is unknown."""
        try:
            said = read_scenario(self._folder / SCENARIO)
            seeds = said.get("seeds", [0])
            first, _, end = str(seeds).partition(":")
            return len(said["protocols"]) * (len(seeds) if isinstance(seeds, list) else int(end) - int(first))
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
                found = {"state": follower.state(), "progress": follower.progress()}
                self.answer(json.dumps(found), "application/json")
            else:
                self.answer("no such page here", "text/plain", status=404)

    return LocalServer(port, Page, "end the program that uses it, or choose another --port")
