"""What the server answers, and to whom; the files that it writes and the studies that it starts."""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended

from vflsim.errors import DataError, ResultsError, ScenarioError
from vflsim.exploring.base import Base, turned
from vflsim.exploring.exploration import Exploration, RunningStudy, saved
from vflsim.exploring.server import LARGEST, TOKEN, served
from vflsim.exploring.slow_figures import Later, pieces
from vflsim.reporting.serving import LocalServer
from vflsim.scenario.load import load

Serving = tuple[LocalServer, str]
PROGRAM = """
import pathlib, sys, time
print("told", *sys.argv[1:3], "timing" if "--timing-only" in sys.argv else "training", flush=True)
folder = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
folder.mkdir(parents=True)
(folder / "report.html").write_text("the report of " + pathlib.Path(sys.argv[2]).read_text().splitlines()[0])
(folder / "begun").touch()
while not (folder / "may-end").exists():
    time.sleep(0.01)
sys.exit(3 if "fail" in sys.argv[2] else 0)
"""


def ask(serving: Serving, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    server, address = serving
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    usual = {"Origin": f"http://127.0.0.1:{server.port}", TOKEN: token(address), "Content-Type": "application/json"}
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {key.replace("_", "-"): value for key, value in {**usual, **headers}.items()}
    connection.request(method, path, content, {key: value for key, value in sent.items() if value})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, json.loads(text) if answer.headers.get_content_type() == "application/json" else text


def token(address: str) -> str:
    return address.partition("token=")[2]


@pytest.fixture
def exploration(template: Base, tmp_path: Path) -> Iterator[Exploration]:
    made = Exploration(template, "a <b>source</b>", tmp_path)
    yield made
    made.close()


def test_the_page_is_given_to_its_address_alone(serving: Serving) -> None:
    server, address = serving
    assert address == f"http://127.0.0.1:{server.port}/?token={token(address)}"
    assert len(token(address)) >= 32
    status, page = ask(serving, "GET", f"/?token={token(address)}")
    assert status == 200
    assert "<h1>Play with time: explored</h1>" in page
    assert "connect-src 'self'" in page
    assert "SCRIPT-HASHES" not in page
    for other in ("/", "/?token=", "/?token=wrong", f"/?tok={token(address)}", "/study", "/report?token=é"):
        assert ask(serving, "GET", other.encode("ascii", "ignore").decode())[0] == 403


@pytest.mark.parametrize("path", ["/x", "/../pyproject.toml", "/explored.yaml", "/study/"])
def test_it_serves_no_file(serving: Serving, path: str) -> None:
    assert ask(serving, "GET", f"{path}?token={token(serving[1])}")[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:1"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": ""}, 403),
        ({TOKEN: ""}, 403),
        ({TOKEN: "é"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Length": "-1"}, 411),
        ({"Content-Length": str(LARGEST + 1)}, 413),
    ],
)
@pytest.mark.parametrize("path", ["/figures", "/run"])
def test_a_request_that_is_not_the_pages_is_refused(
    serving: Serving, path: str, headers: dict[str, str], status: int
) -> None:
    sent = {key: value.encode().decode("latin-1") for key, value in headers.items()}
    assert ask(serving, "POST", path, {"knobs": {}}, **sent)[0] == status


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 5000, b'{"knobs": {}, "knobs": {}}', b"\xff", b'{"knobs": {"t": 1e999999999999}}']
)
def test_a_body_that_is_no_json_is_refused(serving: Serving, body: bytes) -> None:
    status, answer = ask(serving, "POST", "/figures", body)
    assert status == 400 or answer["problems"]


def test_it_answers_no_other_question(serving: Serving) -> None:
    assert ask(serving, "POST", "/other", {})[0] == 404
    assert ask(serving, "PUT", "/figures", {})[0] == 501


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/figures", {"knobs": {}, "seed": 1}, "there is no key 'seed' here"),
        ("/figures", {}, "the key 'knobs' is missing"),
        ("/figures", {"knobs": {"colour": 1}}, "there is no key 'colour' here"),
        ("/figures", [], "a mapping"),
        ("/save", {"knobs": {}, "name": "../x"}, "cannot name a folder of results"),
        ("/save", {"knobs": {}, "name": "x", "overwrite": "perhaps"}, "true or false"),
        ("/run", {"knobs": {}, "name": "x", "command": "rm"}, "there is no key 'command' here"),
        ("/stop", {"signal": 9}, "there is no key 'signal' here"),
    ],
)
def test_unknown_keys_and_wrong_values_are_refused(exploration: Exploration, path: str, body: Any, words: str) -> None:
    answer = exploration.answer(path, body)
    assert answer is not None
    assert words in answer["problems"][0]["text"]


@pytest.mark.parametrize(
    ("moved", "knob", "words"),
    [
        ({"t": 9}, "t", "allowed: 1 to 8"),
        ({"K": 5}, "K", "R = 2(K+T-1) + 1 = 11 answers, and there are 8 clients"),
        ({"batch": 63, "K": 2}, "K", "cannot share a batch of 63 rows equally"),
        ({"clients": 65}, "clients", "65"),
        ({"stragglers": 9}, "stragglers", "9 stragglers of 8 clients"),
        ({"batch": 4096}, "batch", "allowed: 1 to 1,438, or all"),
    ],
)
def test_positions_that_make_no_scenario_are_told_beside_their_knob(
    exploration: Exploration, template: Base, moved: dict[str, Any], knob: str, words: str
) -> None:
    answer = exploration.answer("/figures", {"knobs": {**template.begin, **moved}})
    assert answer is not None
    (problem,) = answer["problems"]
    assert problem["knob"] == knob
    assert words in problem["text"]


def test_a_defect_is_told_and_printed(
    exploration: Exploration, template: Base, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr("vflsim.exploring.exploration.figures", fail)
    answer = exploration.answer("/figures", {"knobs": dict(template.begin)})
    assert answer is not None
    assert "this failed (ZeroDivisionError: a mistake)" in answer["problems"][0]["text"]
    assert "test_requests.py" in capfd.readouterr().err


def test_figures_come_with_the_scenario_that_runs(serving: Serving, template: Base) -> None:
    status, answer = ask(serving, "POST", "/figures", {"knobs": dict(template.begin), "timeline": "async"})
    assert status == 200
    assert load(answer["yaml"]) == load(turned(template, template.begin))
    assert answer["changed"] == ["timing.network"]
    assert answer["timeline"]["protocol"] == "async"
    assert [each["name"] for each in answer["protocols"]] == [*template.raw["protocols"]]


def test_slow_figures_come_piece_by_piece_and_wrong_data_are_told(
    template: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflsim.exploring.slow_figures.ROUNDS", 64)
    two = {**template.raw, "protocols": {name: template.raw["protocols"][name] for name in ("wait", "coded")}}
    two = {**two, "timing": {**two["timing"], "network": "dedicated"}, "partition": {"clients": 4, "by": "columns"}}
    assert next(pieces(two, "unknown"))["piece"] == "closed"
    found = list(pieces(two, "wait"))
    assert [each["piece"] for each in found] == [
        "timeline", "closed", "closed", "choice", "rounds", "choice", "table", "table", "done"
    ]  # fmt: skip
    (told,) = pieces({**two, "training": {**two["training"], "batch": 4096}})
    assert told["piece"] == "problem"
    assert "4,096 rows" in told["text"]


def test_a_new_scenario_ends_the_slow_figures_of_the_one_before(
    template: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    class Threadlike:
        """A process that sends one piece and then waits to be killed."""

        def __init__(self, target: Any, args: tuple[Any, ...], daemon: bool) -> None:
            self.link, self.killed = args[-1], False
            started.append(self)

        def start(self) -> None:
            self.link = self.link.__class__(__import__("os").dup(self.link.fileno()), readable=False)
            self.link.send({"piece": "first"})

        def kill(self) -> None:
            if not self.killed:
                self.killed = True
                self.link.close()

        def join(self) -> None:
            assert self.killed

    later = Later()
    monkeypatch.setattr(later, "_context", type("Context", (), {"Process": Threadlike}))
    one = later.of(template.raw)
    assert next(one) == {"piece": "first"}
    two = later.of(template.raw)
    assert next(two) == {"piece": "first"}
    assert list(one) == []  # ended, and not called a failure
    started[1].kill()  # by somebody else
    assert next(two)["piece"] == "problem"
    later.stop()
    assert [each.killed for each in started] == [True, True]


def test_a_saved_scenario_is_not_overwritten_unless_it_is_asked_for(
    exploration: Exploration, template: Base, tmp_path: Path
) -> None:
    body = {"knobs": dict(template.begin), "name": "mine"}
    assert exploration.answer("/save", body) == {"saved": "mine.yaml"}
    first = (tmp_path / "mine.yaml").read_text()
    assert first.startswith("# Made by vflsim explore from a <b>source</b>.\n\nname: mine\n")
    moved = {**body, "knobs": {**template.begin, "t": 5}}
    refused = exploration.answer("/save", moved)
    assert refused is not None
    assert "this file exists" in refused["problems"][0]["text"]
    assert (tmp_path / "mine.yaml").read_text() == first
    assert exploration.answer("/save", {**moved, "overwrite": True}) == {"saved": "mine.yaml"}
    assert load(tmp_path / "mine.yaml").protocols["t-sync"].protocol.t == 5
    with pytest.raises(ScenarioError, match="this file exists"):
        saved({**template.raw, "name": "mine"}, "x", tmp_path)
    odd = saved({**template.raw, "name": "odd"}, "two\nlines: [", tmp_path).read_text()
    assert odd.startswith("# Made by vflsim explore from two\\nlines: [.\n\nname: odd\n")


@pytest.fixture
def study(tmp_path: Path) -> Iterator[RunningStudy]:
    """Studies of a program that waits to be told that it may end."""
    made = RunningStudy(tmp_path, (sys.executable, "-c", PROGRAM))
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not come")


def test_a_study_runs_in_a_process_and_its_report_is_there_when_it_ends(study: RunningStudy, tmp_path: Path) -> None:
    assert study.state() == {"state": "none", "report": False}
    assert study.report() is None
    study.start({"name": "mine"}, timing_only=True)
    folder = tmp_path / "results" / "mine-timing"
    until((folder / "begun").exists)
    running = study.state()
    assert (running["state"], running["results"], running["report"]) == ("running", "results/mine-timing", False)
    assert running["output"].startswith("told run ")
    assert running["output"].endswith(" timing\n")
    assert study.report() is None
    with pytest.raises(ResultsError, match="a study is running"):
        study.start({"name": "other"}, timing_only=False)
    (folder / "may-end").touch()
    until(lambda: study.state()["state"] == "finished")
    assert study.state()["report"]
    assert study.report() == b"the report of name: mine"


def test_a_study_that_fails_says_so_and_another_may_follow(study: RunningStudy, tmp_path: Path) -> None:
    for name, state in (("fail", "failed"), ("well", "finished")):
        study.start({"name": name}, timing_only=False)
        until((tmp_path / "results" / name / "begun").exists)
        (tmp_path / "results" / name / "may-end").touch()
        until(lambda: study.state()["state"] != "running")
        assert study.state()["state"] == state


def test_a_study_can_be_stopped(study: RunningStudy, tmp_path: Path) -> None:
    study.stop()  # nothing yet
    study.start({"name": "long"}, timing_only=False)
    until((tmp_path / "results" / "long" / "begun").exists)
    study.stop()
    until(lambda: study.state()["state"] == "failed")
    assert "KeyboardInterrupt" in study.state()["output"]


def test_the_command_says_where_the_page_is_and_ends_with_ctrl_c(
    vflsim: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(server: LocalServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalServer, "serve_forever", interrupted)
    monkeypatch.setattr(Exploration, "warm", lambda _: None)
    monkeypatch.chdir(tmp_path)
    ended = vflsim("explore", "quickstart", "--port", 0)
    assert ended.status in (0, None)
    assert ended.out.startswith("open http://127.0.0.1:")
    assert "?token=" in ended.out
    mistyped = vflsim("explore", "quikstart")
    assert mistyped.status == 2
    assert "did you mean 'quickstart'?" in mistyped.err


def test_a_taken_port_is_named(serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Exploration, "warm", lambda _: None)
    with pytest.raises(ResultsError, match=f"port {serving[0].port}.*in use"), served(None, serving[0].port, tmp_path):
        pass


def test_a_scenario_whose_data_are_absent_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLSIM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Later, "warm", lambda _: None)
    with (
        pytest.raises(DataError, match="vflsim data get fashion_mnist"),
        served("fashion_mnist_stragglers", 0, tmp_path),
    ):
        pass
