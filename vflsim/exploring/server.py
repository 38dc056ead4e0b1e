"""The server of ``vflsim explore``: its page, and answers to what the page asks."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vflsim.exploring.base import base_of
from vflsim.exploring.exploration import Exploration
from vflsim.exploring.page import page
from vflsim.exploring.serving import AskingHandler
from vflsim.reporting.serving import ADDRESS, LocalServer

_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "Referrer-Policy": "no-referrer"}


@contextlib.contextmanager
def served(source: Path | str | None, port: int, folder: Path) -> Iterator[tuple[LocalServer, str]]:
    """Make the server that begins with a scenario (None: the template), and the address of its page.

    Its ``serve_forever`` runs it. Files and results go to ``folder``. Raises ScenarioError and DataError for a scenario
    that cannot be shown, and ResultsError if the port is taken.
    """
    base = base_of(source)
    name = "the template of vflsim new" if source is None else str(source)
    exploration, its_token = Exploration(base, name, folder), secrets.token_urlsafe(24)

    class ExploringPage(AskingHandler):
        """Has the page, its answers, and the study's report."""

        token: ClassVar[str] = its_token

        def look_up(self, path: str) -> None:
            """Answer ``/``, ``/study`` and ``/report``."""
            if path == "/":
                self.answer(page(base, name, self.token), "text/html", _HEADERS)
            elif path == "/study":
                self.say(exploration.study.state())
            elif path == "/report" and (report := exploration.study.report()) is not None:
                self.answer(report, "text/html", _HEADERS)
            else:
                self.refuse(404, "no such page here")

        def ask(self, path: str, body: Any) -> None:
            """Answer what the page asks."""
            if path == "/later":
                self.say_in_turn(exploration.later(body))
            elif (answer := exploration.answer(path, body)) is None:
                self.refuse(404, "no such question here")
            else:
                self.say(answer)

    try:
        exploration.warm()
        with LocalServer(port, ExploringPage, "end the program that uses it, or choose another --port") as server:
            yield server, f"http://{ADDRESS}:{server.port}/?token={its_token}"
    finally:
        exploration.close()
