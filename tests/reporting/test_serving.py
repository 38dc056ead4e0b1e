"""Pages served to this machine's browser: the report that follows a study, and a trace for its viewer."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from command_line import Ended

from vflsim.errors import ResultsError
from vflsim.reporting import serving
from vflsim.reporting.serving import MOST, SILENCE_S, LocalServer, watched


@pytest.fixture
def begun(toy_folder: Path, tmp_path: Path) -> Path:
    """A folder whose study has begun, but no run of it has ended."""
    folder = tmp_path / "begun"
    folder.mkdir()
    shutil.copy(toy_folder / "scenario.yaml", folder)
    return folder


@pytest.fixture
def server(begun: Path) -> Iterator[LocalServer]:
    with watched(begun, 0) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.headers), body


def test_the_page_waits_for_the_first_run_and_then_shows_it(
    server: LocalServer, begun: Path, toy_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflsim.reporting.page.page", lambda results, brief, live: f"report of {len(results)}, {live=}")
    monkeypatch.setattr("vflsim.reporting.serving._SHARE", 0)
    assert server.server_address[0] == "127.0.0.1"
    assert b"0 of 12 runs have ended" in get(server.port, "/")[2]
    before = json.loads(get(server.port, "/state")[2])
    shutil.copytree(toy_folder / "wait", begun / "wait")
    after = json.loads(get(server.port, "/state")[2])
    assert after["progress"].startswith("3 of 12 runs have ended")
    assert after["state"] != before["state"]
    assert get(server.port, "/")[2] == b"report of 1, live=True"
    assert json.loads(get(server.port, "/state")[2]) == after


@pytest.mark.parametrize("path", ["/scenario.yaml", "/wait/seed-0/run.json", "/../", "/state/"])
def test_it_serves_no_file(server: LocalServer, path: str) -> None:
    assert get(server.port, path)[0] == 404


def test_it_answers_to_no_other_name(server: LocalServer) -> None:
    assert get(server.port, "/state", Host=f"evil.example:{server.port}")[0] == 421
    assert get(server.port, "/state", Host="127.0.0.1")[0] == 421
    assert get(server.port, "/state", Host=f"localhost:{server.port}")[0] == 200
    assert get(server.port, "/", method="POST")[0] == 501


def test_a_taken_port_is_named(server: LocalServer, begun: Path) -> None:
    with pytest.raises(ResultsError, match=f"port {server.port}.*in use"):
        watched(begun, server.port)


@pytest.mark.slow
def test_an_open_page_takes_over_the_runs_that_end(
    tab: Browser, server: LocalServer, begun: Path, toy_folder: Path
) -> None:
    tab.open(f"http://127.0.0.1:{server.port}/")
    told = "document.querySelector('.live').textContent"
    pause = "await new Promise((ok) => setTimeout(ok, 100))"
    wait = f"(async () => {{ for (let k = 0; k < 300; k++) {{ if (%s) return true; {pause}; }} }})()"
    assert tab.value(wait % f"{told}.startsWith('0 of 12')")
    shutil.copytree(toy_folder / "wait" / "seed-0", begun / "wait" / "seed-0")
    assert tab.value(wait % "document.querySelectorAll('.chart canvas').length == 2")
    assert tab.value(told).startswith("1 of 12 runs have ended")
    assert tab.value("document.querySelectorAll('.sortable').length") > 3
    assert tab.complaints == []
    assert {each.partition(f":{server.port}/")[2] for each in tab.requests} == {"", "state"}


def test_a_trace_is_given_to_its_viewer_once(
    vflsim: Callable[..., Ended], toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[tuple[int, dict[str, str], bytes]] = []
    monkeypatch.setattr(serving, "PORT", 0)

    def visit(port: int, name: str) -> None:
        answers.append(get(port, "/other.json"))
        answers.append(get(port, f"/{name}", method="OPTIONS"))
        answers.append(get(port, f"/{name}", Origin=serving.VIEWER))

    def browse(place: str) -> bool:
        port, _, name = place.removeprefix("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:").partition("/")
        visitor = threading.Thread(target=visit, args=(int(port), name))
        visitors.append(visitor)
        visitor.start()
        return False

    visitors: list[threading.Thread] = []
    monkeypatch.setattr("webbrowser.open", browse)
    trace = tmp_path / "trace.json"
    ended = vflsim("trace", toy_folder, "--protocol", "wait", "--seed", 0, "--out", trace, "--open")
    assert "no browser here: open https://ui.perfetto.dev/#!/?url=http://127.0.0.1:" in ended.out
    visitors[0].join()
    other, asked, given = answers
    assert other[0] == 404
    assert (asked[0], asked[1]["Access-Control-Allow-Origin"]) == (204, serving.VIEWER)
    assert (given[0], given[1]["Access-Control-Allow-Origin"]) == (200, serving.VIEWER)
    assert given[2] == trace.read_bytes()


def test_the_command_says_where_the_page_is_and_ends_with_ctrl_c(
    vflsim: Callable[..., Ended], toy_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(server: LocalServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalServer, "serve_forever", interrupted)
    ended = vflsim("watch", toy_folder, "--port", 0)
    assert ended.status in (0, None)
    assert f"{toy_folder}: open http://127.0.0.1:" in ended.out
    assert "nowhere (absent yet): open http://127.0.0.1:" in vflsim("watch", "nowhere", "--port", 0).out


@contextlib.contextmanager
def half_open(port: int, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Connections that begin a request and do not end it."""
    with contextlib.ExitStack() as kept:
        made = [kept.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]
        for each in made:
            each.settimeout(60)
            with contextlib.suppress(ConnectionError):  # ended already
                each.sendall(sent)
        yield made


@pytest.mark.parametrize("sent", [b"", b"GET /st", b"GET /state HTTP/1.1\r\nHost: 127"])
def test_half_open_connections_keep_few_threads_and_nobody_out(server: LocalServer, sent: bytes) -> None:
    before = threading.active_count()
    with half_open(server.port, 3 * MOST, sent) as connections:
        for _ in range(5):  # each is accepted after all of those
            assert get(server.port, "/state")[0] == 200
        for ended in connections[: 2 * MOST]:
            with contextlib.suppress(ConnectionError):
                assert ended.recv(1) == b""
        for _ in range(6000):
            if threading.active_count() - before <= MOST:
                break
            time.sleep(0.01)  # some are about to end
        else:
            pytest.fail(f"{threading.active_count() - before} threads stay")


def test_a_silent_connection_ends(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.RequestHandlerClass, "timeout", 0.05)
    with half_open(server.port, 1, b"GET /state") as (silent,):
        assert silent.recv(1) == b""
    assert server.RequestHandlerClass.__mro__[1].timeout == SILENCE_S


def test_a_browser_that_hangs_up_leaves_no_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, errors = tmp_path / "trace.json", []
    trace.write_bytes(bytes(1 << 24))  # more than the buffers of the sockets hold
    with serving.served(trace, 0) as server:
        handled = server.handle_error
        ended = threading.Event()

        def handle(*given: Any) -> None:
            errors.append(sys.exception())
            handled(*given)
            ended.set()

        monkeypatch.setattr(server, "handle_error", handle)
        loop = threading.Thread(target=server.serve_forever, daemon=True)
        loop.start()
        with socket.create_connection(("127.0.0.1", server.port)) as leaving:
            leaving.sendall(b"GET /trace.json HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.port)
            leaving.recv(10)
        assert ended.wait(60)
        assert [isinstance(error, ConnectionError) for error in errors] == [True]
        assert get(server.port, "/trace.json")[2] == trace.read_bytes()  # it may be fetched again
        loop.join()
    assert capfd.readouterr().err == ""


def test_a_mistake_in_a_page_is_printed(server: LocalServer, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        raise KeyError("a mistake")
    except KeyError:
        server.handle_error(None, ("127.0.0.1", 1))
    assert "a mistake" in capfd.readouterr().err
