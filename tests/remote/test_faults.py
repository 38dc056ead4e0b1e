"""What goes wrong in a live run: one clear error that names the party, within the time-out, and nobody hangs."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tiny_worlds import RANDOM_TIMING, raw

from vflsim.remote.keys import make_identities
from vflsim.remote.server import LiveServer
from vflsim.scenario import load

TIMEOUT_S = 10.0
LONG_S = 400.0
"""More than any of these takes on a busy machine."""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A run of hours for two clients."""
    said = raw({"wait": {"kind": "synchronous"}}, timing=RANDOM_TIMING, stop={"rounds": 1_000_000})
    said["partition"]["clients"] = 2
    file = tmp_path / "scenario.yaml"
    file.write_text(json.dumps(said))
    make_identities(tmp_path / "keys", clients=2)
    return file


class Played:
    """A server in this process, and two clients in theirs."""

    def __init__(self, scenario: Path) -> None:
        keys, parts = scenario.parent / "keys", scenario.parent / "parts"
        self.server = LiveServer(load(scenario), keys / "server", parts, TIMEOUT_S)
        port = self.server.open("127.0.0.1", 0)
        command = [sys.executable, "-m", "vflsim", "party", str(scenario), "--connect", f"127.0.0.1:{port}"]
        command += ["--parts", str(parts), "--timeout", str(TIMEOUT_S)]
        self.clients = {
            number: subprocess.Popen(
                [*command, "--party", str(number), "--identity", str(keys / f"client-{number}")],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for number in (1, 2)
        }  # fmt: skip
        self.server.wait(within=LONG_S)

    def after_rounds(self, rounds: int, call: Callable[[], None]) -> str:
        """Play, and make a call once so many rounds are over; return the error of the run."""
        done = False

        def report(progress: object) -> None:
            nonlocal done
            if progress.rounds >= rounds and not done:  # type: ignore[attr-defined]
                done = True
                call()

        outcome = self.server.run("wait", seed=0, report=report)
        assert done
        assert outcome.error is not None
        assert len(outcome.tables.metrics["time_s"]) >= 1, "what had been recorded is kept"
        return str(outcome.error)

    def said(self, number: int) -> tuple[int, str]:
        """The status of a client's process, and what it has said."""
        text = self.clients[number].communicate(timeout=LONG_S)[0]
        return self.clients[number].returncode, text

    def end(self) -> None:
        with suppress(Exception):
            self.server.close()
        for client in self.clients.values():
            client.kill()
            client.communicate()


@pytest.fixture
def played(scenario: Path) -> Iterator[Played]:
    made = Played(scenario)
    yield made
    made.end()


@pytest.mark.slow
def test_a_killed_client_ends_the_run_and_the_others_part(played: Played) -> None:
    error = played.after_rounds(3, lambda: os.kill(played.clients[2].pid, signal.SIGKILL))
    assert "the connection to client-2" in error
    played.server.close()
    assert played.said(1)[0] == 0


@pytest.mark.slow
def test_a_frozen_client_is_lost_after_the_time_out(played: Played) -> None:
    error = played.after_rounds(3, lambda: os.kill(played.clients[2].pid, signal.SIGSTOP))
    assert "client-2 gave no sign of life for" in error


@pytest.mark.slow
def test_a_cut_connection_names_its_party_on_both_sides(played: Played) -> None:
    error = played.after_rounds(3, lambda: played.server.connected[1]._writer.transport.abort())
    assert "the connection to client-1" in error
    status, text = played.said(1)
    assert status == 1
    assert "the connection to server" in text
    assert "Traceback" not in text


@pytest.mark.slow
def test_clients_end_with_one_message_when_the_server_is_frozen(played: Played) -> None:
    for number in (1, 2):  # the server's loop does not run
        status, text = played.said(number)
        assert status == 1
        assert "server gave no sign of life" in text
        assert "Traceback" not in text


@pytest.mark.slow
def test_a_killed_server_leaves_finished_runs_and_the_clients_parts_and_each_client_names_it(tmp_path: Path) -> None:
    said = raw({"short": {"kind": "synchronous", "stop": {"rounds": 3}}, "wait": {"kind": "synchronous"}})
    said |= {"timing": RANDOM_TIMING, "stop": {"rounds": 1_000_000}, "record": "events"}
    said["partition"]["clients"] = 2
    file, parts, out = tmp_path / "scenario.yaml", tmp_path / "parts", tmp_path / "live"
    file.write_text(json.dumps(said))
    make_identities(tmp_path / "keys", clients=2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    vflsim, common = [sys.executable, "-m", "vflsim"], ["--parts", str(parts), "--timeout", "60", "--identity"]
    commands = [
        [*vflsim, "live", str(file), "--listen", place, *common, str(tmp_path / "keys" / "server"), "--out", str(out)]
    ]
    for party in (1, 2):
        own = [*common, str(tmp_path / "keys" / f"client-{party}"), "--party", str(party), "--connect", place]
        commands.append([*vflsim, "party", str(file), *own])
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands
    ]
    try:
        last = time.monotonic() + LONG_S
        while not (out / "short" / "seed-0" / "run.json").is_file():
            assert time.monotonic() < last, "the first run never ended"
            time.sleep(0.1)
        time.sleep(1.0)
        processes[0].kill()
        texts = [process.communicate(timeout=LONG_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes[1:]] == [1, 1], texts
    assert all("the connection to server" in text and "Traceback" not in text for text in texts[1:])
    assert {part.name for part in (parts / "wait" / "seed-0").iterdir()} == {"client-1", "client-2"}
