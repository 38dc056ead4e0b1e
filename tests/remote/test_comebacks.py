"""New processes of clients prepare for a run, and where clients are connected to each other one at a time."""

import pytest

from vflsim.errors import RunError
from vflsim.remote.admission import Restarts
from vflsim.remote.control import Control, Introduced, Peer, Prepare
from vflsim.remote.transport import LIFE

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
