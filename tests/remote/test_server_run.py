"""What the server tells a client whose new process is here, before and after it is ready to go on."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_worlds import raw

from vflsim.remote.channel import GoneError
from vflsim.remote.control import Control, EvaluateNow, Prepare, Start
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


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


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
