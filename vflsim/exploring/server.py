"""The server of ``vflsim explore``: its page, and answers to what the page asks."""

import contextlib
import json
import secrets
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qs, urlsplit

from vflsim.exploring.base import Base, base_of
from vflsim.exploring.exploration import Exploration
from vflsim.exploring.knobs import NETWORKS, PLAYED
from vflsim.files import parsed_json
from vflsim.reporting.figures import embedded
from vflsim.reporting.page import ASSETS, rendered
from vflsim.reporting.serving import ADDRESS, LocalHandler, LocalServer

Scale = Literal["whole", "linear", "log", "powers"]
"""How a slider moves: by 1, evenly, by ratios, or by powers of 2."""


@dataclass(frozen=True, slots=True)
class Control:
    """A slider and a box. ``factor`` turns a number in ``unit`` into SI units; ``most`` may name another knob.

    ``word`` is a value that stands for no number, such as ``unlimited``, for which there is a box to tick.
    """

    label: str
    least: float
    most: float | str
    scale: Scale
    unit: str = ""
    factor: float = 1.0
    word: str = ""
    hint: str = ""


CONTROLS = {
    "clients": Control("clients", 2, 64, "whole"),
    "stragglers": Control("stragglers", 0, "clients", "whole", hint="the last clients; the others have no delay"),
    "bandwidth": Control("bandwidth", 1, 10_000, "log", "Mbps", 1e6, "unlimited", "of every link, up and down"),
    "latency": Control("latency", 0, 500, "log", "ms", 1e-3, hint="of every link; a message pays two"),
    "batch": Control("batch", 1, 4096, "powers", "rows", word="all"),
    "t": Control("t", 1, "clients", "whole", hint="embeddings that make a step"),
    "K": Control("K", 1, 16, "whole", hint="segments of the data"),
    "T": Control("T", 1, 8, "whole", hint="masks: colluding clients that learn nothing"),
}
"""The knobs that are numbers."""


def _seconds(key: str, least: float = 0.001, hint: str = "") -> Control:
    return Control(key, least, 60, "log", "s", 1.0, hint=hint)


_PARAMETERS = {
    "value": _seconds("value", 0),
    "mean": _seconds("mean"),
    "median": _seconds("median"),
    "scale": _seconds("scale"),
    "minimum": _seconds("minimum"),
    "shift": _seconds("shift", 0, hint="the shortest delay; the mean adds to it"),
    "low": _seconds("low", 0),
    "high": _seconds("high"),
    "sd": _seconds("standard deviation"),
    "sigma": Control("sigma", 0.05, 3, "log", hint="of the delay’s logarithm"),
    "shape": Control("shape", 0.2, 10, "log"),
}
"""The parameters of delays, by key."""

BEGINNINGS: dict[str, dict[str, float | str]] = {
    "constant": {"value": "mean"},
    "exponential": {"mean": "mean"},
    "shifted_exponential": {"shift": "half", "mean": "half"},
    "uniform": {"low": "half", "high": "more"},
    "normal": {"mean": "mean", "sd": "quarter"},
    "lognormal": {"sigma": 1.0, "mean": "mean"},
    "gamma": {"shape": 2.0, "mean": "mean"},
    "weibull": {"shape": 0.7, "mean": "mean"},
    "pareto": {"shape": 2.5, "mean": "mean"},
}
"""The parameters of a kind of delay when it is chosen: numbers, or shares of the mean of the delay before."""


def controls() -> dict[str, Any]:
    """Return all that the page needs to make its controls, as plain values."""
    return {
        "numbers": {name: asdict(each) for name, each in CONTROLS.items()},
        "parameters": {name: asdict(each) for name, each in _PARAMETERS.items()},
        "kinds": {kind: BEGINNINGS[kind] for kind in (str(each.model_fields["kind"].default) for each in PLAYED)},
        "networks": NETWORKS,
    }


_OWN = Path(__file__).parent / "assets"


def page(base: Base, source: str, token: str) -> str:
    """Make the page that begins with a base. ``source`` names it; questions show the ``token``."""
    facts = {
        "controls": controls(),
        "begin": dict(base.begin),
        "unheld": dict(base.unheld),
        "having": {key: list(names) for key, names in base.having.items()},
        "name": base.name,
        "token": token,
    }
    content = {"base": base, "source": source, "told": embedded(facts)}
    return rendered("explore.html.jinja", (_OWN, ASSETS), **content)


LARGEST = 1 << 16
"""Most bytes of a request's body."""
TOKEN = "X-Vflsim-Token"
"""The header in which the page shows that it is the one that this server has given out."""


class AskingHandler(LocalHandler):
    """Answers GET and POST to those who know the server's ``token``.

    It is in the address that the command prints, so that other users of this machine cannot ask; a POST repeats it in a
    header, which pages of other origins cannot set.
    """

    token: ClassVar[str]

    def respond(self) -> None:
        """Answer a GET whose address has the token, else refuse it."""
        address = urlsplit(self.path)
        token = parse_qs(address.query).get("token", [""])[0]
        if address.path == "/favicon.ico":
            self.answer("", "image/x-icon", status=204)
        elif not secrets.compare_digest(token.encode(), self.token.encode()):
            self.refuse(403, "open the address that vflsim explore has printed, with its token")
        else:
            self.look_up(address.path)

    def do_POST(self) -> None:  # noqa: N802  the library's name
        """Answer a POST from the page, else refuse it: its host, origin, token, kind, size and syntax are checked."""
        if not self.allowed():
            return
        origins = {f"http://{name}:{self.server.port}" for name in (ADDRESS, "localhost")}
        if self.headers.get("Origin") not in origins:
            return self.refuse(403, "requests from other pages are refused")
        if not secrets.compare_digest(self.headers.get(TOKEN, "").encode(), self.token.encode()):
            return self.refuse(403, f"the header {TOKEN} lacks the token of this server")
        if self.headers.get_content_type() != "application/json":
            return self.refuse(415, "a body of type application/json is needed")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return self.refuse(411, "the length of the body is not said")
        if int(length) > LARGEST:
            return self.refuse(413, f"a body of {int(length):,} bytes is too large; allowed: at most {LARGEST:,}")
        try:
            body = parsed_json(self.rfile.read(int(length)))
        except ValueError as error:
            return self.refuse(400, f"the body is no JSON: {error}")
        self.ask(self.path, body)

    @abstractmethod
    def look_up(self, path: str) -> None:
        """Answer a GET for a path."""

    @abstractmethod
    def ask(self, path: str, body: Any) -> None:
        """Answer a POST to a path."""

    def refuse(self, status: int, why: str) -> None:
        """Answer with an error."""
        self.say({"problems": [{"knob": None, "text": why}]}, status)

    def say(self, answer: Mapping[str, Any], status: int = 200) -> None:
        """Answer with JSON."""
        self.answer(_json(answer), "application/json", status=status)

    def say_in_turn(self, answers: Iterator[Mapping[str, Any]]) -> None:
        """Answer with a line of JSON for each, as soon as it is there."""
        self.send_response(200)
        for name, value in {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/x-ndjson; charset=utf-8")
        self.end_headers()
        for each in answers:
            self.wfile.write(_json(each).encode() + b"\n")
            self.wfile.flush()


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


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
