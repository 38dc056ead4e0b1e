"""The server's wait for clients that are away."""

import asyncio
from collections.abc import Iterator

import pytest

from vflsim.errors import IncompleteRoundError
from vflsim.remote.channel import GoneError
from vflsim.remote.returns import Returns


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def waiting(loop: asyncio.AbstractEventLoop) -> tuple[Returns, list[IncompleteRoundError]]:
    errors: list[IncompleteRoundError] = []
    returns = Returns(loop.call_later, 0.02, lambda: 7, errors.append)
    for client in (1, 2):
        returns.wait_for(client, GoneError(f"the connection to client-{client} ended"))
    return returns, errors


def test_a_client_that_does_not_come_back_in_time_is_named(loop: asyncio.AbstractEventLoop) -> None:
    returns, errors = waiting(loop)
    returns.here(1)
    assert (1 in returns, 2 in returns) == (False, True)
    loop.run_until_complete(asyncio.sleep(0.1))
    (error,) = errors
    assert error.what == (
        "round 7 cannot be completed: the connection to client-2 ended, and client-2 has not come back within 0.02 s"
    )
    assert 2 not in returns


def test_a_second_loss_gives_no_more_time(loop: asyncio.AbstractEventLoop) -> None:
    returns, errors = waiting(loop)
    loop.run_until_complete(asyncio.sleep(0.001))
    first = returns._waiting[2]
    returns.wait_for(2, GoneError("the connection to client-2 ended"))
    assert returns._waiting[2] is first
    returns.close()
    loop.run_until_complete(asyncio.sleep(0.05))
    assert errors == []
