"""The server's wait for clients that are away, by a clock of the test's own."""

from collections.abc import Callable

from vflsim.errors import IncompleteRoundError
from vflsim.remote.admission import Returns
from vflsim.remote.channel import GoneError


class Later:
    """Calls that wait, each with its seconds, until the test lets them happen."""

    def __init__(self) -> None:
        self.waiting: list[Later.Call] = []

    class Call:
        def __init__(self, seconds: float, call: Callable[[], None]) -> None:
            self.seconds, self.call, self.cancelled = seconds, call, False

        def cancel(self) -> None:
            self.cancelled = True

    def __call__(self, seconds: float, call: Callable[[], None]) -> Call:
        self.waiting.append(self.Call(seconds, call))
        return self.waiting[-1]

    def pass_by(self) -> None:
        for each in self.waiting:
            if not each.cancelled:
                each.call()


def waiting() -> tuple[Returns, Later, list[IncompleteRoundError]]:
    errors: list[IncompleteRoundError] = []
    later = Later()
    returns = Returns(later, 0.02, lambda: 7, errors.append)
    for client in (1, 2):
        returns.wait_for(client, GoneError(f"the connection to client-{client} ended"))
    return returns, later, errors


def test_a_client_that_does_not_come_back_in_time_is_named() -> None:
    returns, later, errors = waiting()
    returns.here(1)
    assert (1 in returns, 2 in returns) == (False, True)
    later.pass_by()
    (error,) = errors
    assert error.what == (
        "round 7 cannot be completed: the connection to client-2 ended, and client-2 has not come back within 0.02 s"
    )
    assert 2 not in returns


def test_a_second_loss_gives_no_more_time() -> None:
    returns, later, _ = waiting()
    returns.wait_for(2, GoneError("the connection to client-2 ended"))
    assert [each.seconds for each in later.waiting] == [0.02, 0.02]


def test_nobody_is_given_up_after_the_end() -> None:
    returns, later, errors = waiting()
    returns.close()
    later.pass_by()
    assert errors == []
