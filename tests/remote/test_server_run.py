"""A run's two ends: what a client that comes back is told, and in whose thread a client tells of releases."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tiny_worlds import raw

from vflsim.remote.channel import GoneError
from vflsim.remote.client_run import ClientRun
from vflsim.remote.control import Control, Counted, EvaluateNow, Prepare, Start
from vflsim.remote.private_data import PrivateData
from vflsim.remote.server_run import ServerRun
from vflsim.scenario import load
from vflsim.streams import SERVER
from vflsim.world.messages import EvaluationRequest

TIMING: dict[str, Any] = {
    "clients": [
        {"select": "all", "compute": "1 ms"},
        {"select": "2", "availability": {"kind": "intervals", "down": [["1 s", "2 s"]], "interrupted": "lost"}},
    ]
}


ASKED = EvaluateNow(number=1, splits=("test",), free=True, wired=False)


class Heard:
    """A connection that keeps what is sent."""

    def __init__(self) -> None:
        self.said: list[Control | tuple[bool, bytes]] = []

    def attend(self, *calls: Callable[..., None]) -> None:
        """Take the calls for what comes, which is nothing."""

    def control(self, message: Control) -> None:
        self.said.append(message)

    def message(self, body: bytes, timed: bool) -> None:
        self.said.append((timed, body))

    @property
    def kinds(self) -> list[str]:
        return [each.kind if isinstance(each, Control) else "message" for each in self.said]


def test_a_client_that_comes_back_hears_nothing_of_the_run_before_it_is_ready(loop: asyncio.AbstractEventLoop) -> None:
    scenario = load(raw({"wait": {"kind": "asynchronous"}}, timing=TIMING))
    connected = {client: Heard() for client in range(1, scenario.clients + 1)}
    host: Any = SimpleNamespace(
        scenario=scenario, data=PrivateData(scenario, SERVER), loop=loop, connected=connected, timeout=60.0,
        returns=True, admission=SimpleNamespace(expected=set()),
    )  # fmt: skip
    run = ServerRun(host, Prepare(protocol="wait", seed=0, run="0" * 16))
    run._began = loop.time()
    former = connected[2]
    run._gone(2, GoneError("the connection to client-2 ended"))
    request = EvaluationRequest(round=0)
    request.receiver, request.sender = 2, SERVER
    run._ask(ASKED)
    run._send(request, timed=False)
    again = connected[2] = Heard()
    run._come_back(2)
    run._ask(ASKED)
    run._send(request, timed=False)
    run._send(request, timed=True)
    assert (former.kinds, again.kinds) == ([], ["prepare"])
    assert connected[1].kinds == ["evaluate", "evaluate"]
    run._go_on(2)
    assert again.kinds == ["prepare", "start", "evaluate", "message", "evaluate", "message"]
    assert isinstance(again.said[1], Start)
    assert all(each[0] is not True for each in again.said if isinstance(each, tuple)), "none counts for the run"
    run._send(request, timed=True)
    assert again.kinds[-1] == "message"
    run._returns.close()


def test_what_another_thread_tells_is_sent_by_the_thread_of_the_loop_and_in_order() -> None:
    loop = asyncio.new_event_loop()
    sent: list[tuple[Control, threading.Thread]] = []
    channel = SimpleNamespace(control=lambda message: sent.append((message, threading.current_thread())))
    run: Any = SimpleNamespace(_client=SimpleNamespace(loop=loop, channel=channel), _thread=threading.current_thread())
    ClientRun._tell(run, Counted(updates=1))
    assert len(sent) == 1, "at once, in the loop's own thread"

    def compute() -> None:
        for updates in (2, 3):
            ClientRun._tell(run, Counted(updates=updates))
        loop.call_soon_threadsafe(loop.stop)

    working = threading.Thread(target=compute)
    working.start()
    working.join()
    assert len(sent) == 1
    loop.run_forever()
    loop.close()
    assert sent == [(Counted(updates=updates), threading.current_thread()) for updates in (1, 2, 3)]
