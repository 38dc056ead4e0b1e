"""Clients that are away: how long the server waits, and how their new processes prepare for the run."""

from collections.abc import Callable

import pytest

from vflsim.errors import IncompleteRoundError, RunError
from vflsim.remote.admission import Restarts, Returns
from vflsim.remote.channel import GoneError
from vflsim.remote.control import Control, Introduced, Peer, Prepare
from vflsim.remote.transport import LIFE


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


ANNOUNCED = Prepare(protocol="coded", seed=0, run="0" * 16)


PEERS = [Peer(party=party, host="here", port=7000 + party, facts={"bound": 1.5}) for party in (1, 2, 3)]


def comebacks(*peers: Peer) -> tuple[Restarts, list[tuple[int, Control]]]:
    said = list[tuple[int, Control]]()
    return Restarts(ANNOUNCED, peers, lambda *word: said.append(word), lambda _: "there"), said


def firsts(said: list[tuple[int, Control]]) -> list[tuple[int, int]]:
    return [(client, word.first) for client, word in said if isinstance(word, Prepare) and word.again]


def test_each_process_numbers_its_messages_anew() -> None:
    made, said = comebacks()
    for client in (2, 1, 2):
        made.came(client)
        made.done(client)
    assert firsts(said) == [(2, LIFE), (1, LIFE), (2, 2 * LIFE)]
    assert [made.first(client) for client in (1, 2, 3)] == [LIFE, 2 * LIFE, 0]


def test_clients_that_are_connected_to_each_other_prepare_one_after_the_other() -> None:
    made, said = comebacks(*PEERS)
    for client in (2, 3, 1):
        made.came(client)
    assert firsts(said) == [(2, LIFE)]
    made.done(3)  # it has gone again
    assert firsts(said) == [(2, LIFE)]
    made.done(2)
    assert firsts(said) == [(2, LIFE), (1, LIFE)]


def test_one_that_prepares_learns_where_the_others_are_now_and_who_is_away() -> None:
    made, said = comebacks(*PEERS)
    made.came(2)
    made.introduced(2, Introduced(port=8002, facts={"bound": 1.5}), away=[2, 3])
    assert said[1:] == [(2, PEERS[0]), (2, PEERS[2].model_copy(update={"here": False}))]
    made.done(2)
    made.came(3)
    del said[:]
    made.introduced(3, Introduced(port=8003, facts={"bound": 1.5}), away=[3])
    assert said == [(3, PEERS[0]), (3, PEERS[1].model_copy(update={"host": "there", "port": 8002}))]


def test_other_facts_and_introductions_at_another_time_are_refused() -> None:
    made, _ = comebacks(*PEERS)
    with pytest.raises(RunError, match="client 2 sent an 'introduced' message in a run"):
        made.introduced(2, Introduced(port=8002, facts={"bound": 1.5}), away=[])
    made.came(2)
    with pytest.raises(RunError, match="client-2 has come back with other data"):
        made.introduced(2, Introduced(port=8002, facts={"bound": 1.6}), away=[2])
