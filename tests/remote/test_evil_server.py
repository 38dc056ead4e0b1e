"""What a server can get from a client by departing from the protocol: nothing but what the table of the page says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evil_servers import BLINDED, NOISE, EvilServer, ready_value, world_of

from vflsim.learning.batches import Batch
from vflsim.protocols.blinded import PublicKeys
from vflsim.remote.control import (
    Away,
    Back,
    Bye,
    CameUp,
    Control,
    Counted,
    Done,
    Dropped,
    EvaluateNow,
    Failed,
    Hello,
    Introduced,
    IsDue,
    Joined,
    NoiseAdded,
    Passing,
    Peer,
    Prepare,
    Ready,
    Refused,
    Spent,
    Start,
    Stopped,
    Voucher,
    Welcome,
    WentDown,
    Withdrawn,
    Written,
)
from vflsim.remote.world import machine
from vflsim.world.messages import Answer, Embedding, EvaluationAnswer, Gradient, Query

Make = Callable[..., EvilServer]
PLAIN: dict[str, Any] = {"kind": "synchronous"}
NOISY: dict[str, Any] = {"kind": "synchronous", "mechanism": NOISE}
ROUNDED: dict[str, Any] = {"kind": "synchronous", "codec": {"kind": "round", "noise": {"epsilon": 2}}}
QUERIED: dict[str, Any] = {"kind": "asynchronous", "max_staleness": 2}


@pytest.fixture
def evil(tmp_path: Path) -> Iterator[Make]:
    made: list[EvilServer] = []

    def make(protocol: dict[str, Any], **changes: Any) -> EvilServer:
        made.append(EvilServer(tmp_path, world_of(protocol, **changes)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def evaluation(number: int = 1, **said: Any) -> EvaluateNow:
    return EvaluateNow(**{"number": number, "splits": ("test",), "free": True, "wired": True, **said})


def of(server: EvilServer, kind: type[Any]) -> list[Any]:
    return [each for each in server.messages if isinstance(each, kind)]


def answers(server: EvilServer) -> int:
    return len(of(server, EvaluationAnswer))


def begun_blinded(server: EvilServer) -> None:
    """Bring a client that blinds to its first embedding."""
    server.prepare()
    keys = server.vouch_for_others()
    server.start()
    server.until(lambda: bool(server.messages))
    server.send(PublicKeys(value=ready_value(torch.tensor([[*key] for key in keys], dtype=torch.uint8))))
    server.until(lambda: bool(of(server, Embedding)))


def gradient(server: EvilServer, k: int, value: float = 0.0) -> Gradient:
    embedding = of(server, Embedding)[-1]
    return Gradient(value=ready_value(torch.full(embedding.value.shape, value, dtype=torch.float64)), round=k)


# --- evaluations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [BLINDED, NOISY], ids=["blinded", "noisy"])
def test_no_evaluation_shows_embeddings_of_training_rows(protocol: dict[str, Any], evil: Make) -> None:
    server = evil(protocol)
    (begun_blinded if protocol is BLINDED else EvilServer.begin)(server)
    server.tell(evaluation(splits=("train",), wired=protocol is not BLINDED))
    server.ask(1)
    assert "asks for evaluation 1 of train" in server.refused(lambda: bool(answers(server)))


@pytest.mark.parametrize(
    ("protocol", "asked", "every"),
    [
        (PLAIN, [evaluation(splits=("test", "train"))], "5 rounds"),
        (PLAIN, [evaluation(splits=("validation", "test"))], "5 rounds"),
        (PLAIN, [evaluation(2)], "5 rounds"),
        (PLAIN, [evaluation(), evaluation()], "5 rounds"),
        (PLAIN, [evaluation(free=False)], "5 rounds"),
        (PLAIN, [evaluation(number) for number in range(1, 15)], "5 rounds"),
        (PLAIN, [evaluation(number) for number in range(1, 5)], "1000 s"),
        (ROUNDED, [evaluation(wired=False)], "5 rounds"),
    ],
    ids=["more rows", "other rows", "out of turn", "twice", "in time", "too many", "too early", "without the codec"],
)
def test_evaluations_that_the_scenario_does_not_have_are_refused(
    protocol: dict[str, Any], asked: list[EvaluateNow], every: str, evil: Make
) -> None:
    server = evil(protocol, evaluate={"every": every})
    server.begin()
    server.tell(*asked)
    assert f"the server asks for evaluation {asked[-1].number} of" in server.refused()


@pytest.mark.parametrize("protocol", [PLAIN, ROUNDED], ids=["plain", "with noise of the codec"])
def test_evaluations_at_the_same_weights_show_the_same(protocol: dict[str, Any], evil: Make) -> None:
    server = evil(protocol)
    server.begin()
    for number in (1, 2, 3):
        server.tell(evaluation(number))
        server.ask(number)
    server.until(lambda: answers(server) == 3)
    first, *others = (each.value.value for each in of(server, EvaluationAnswer))
    assert all(torch.equal(first, other) for other in others)


def test_requests_without_an_order_and_repeated_ones_are_not_answered(evil: Make) -> None:
    server = evil(PLAIN)
    server.begin()
    for number in (1, 1, 2):
        server.ask(number)
    server.tell(evaluation(1))
    server.until(lambda: bool(answers(server)))
    server.send(gradient(server, 0))
    server.until(lambda: len(of(server, Embedding)) == 2)
    assert answers(server) == 1


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [{"protocol": "other"}, {"seed": 7}, {"protocol": "without"}],
    ids=["another protocol", "another seed", "one without the client"],
)
def test_runs_that_the_scenario_does_not_have_are_refused(said: dict[str, Any], evil: Make) -> None:
    server = evil(PLAIN, more={"without": {"kind": "ignore", "exclude": "1"}})
    server.tell(Prepare(**{"protocol": "only", "seed": 0, "run": "0" * 16, **said}))
    assert "the server announces a run of" in server.refused(lambda: bool(server.of(Ready)))


@pytest.mark.parametrize("again", [False, True])
def test_a_run_is_played_once(again: bool, evil: Make) -> None:
    server = evil(NOISY)
    server.begin()
    server.end_run()
    server.tell(Prepare(protocol="only", seed=0, run="1" * 16, again=again))
    assert "with seed 0 again" in server.refused(lambda: len(server.of(Ready)) == 2)


def test_a_new_process_of_a_client_does_not_release_the_same_embeddings_under_other_noise(evil: Make) -> None:
    server = evil(NOISY)
    server.begin()
    server.again()
    server.tell(Prepare(protocol="only", seed=0, run="1" * 16))
    server.until(lambda: bool(server.of(Failed)))
    assert "client-1 has released embeddings of 'only' with seed 0 in another run" in server.of(Failed)[0].what
    assert not server.messages


def test_a_run_goes_on_only_where_the_client_keeps_what_it_learns(evil: Make) -> None:
    server = evil(PLAIN)
    server.tell(Prepare(protocol="only", seed=0, run="1" * 16, again=True))
    server.until(lambda: bool(server.of(Failed)))
    assert server.of(Failed)[0].what == "the server has this client go on with a run"


def test_two_runs_of_one_seed_have_masks_of_their_own(evil: Make) -> None:
    server, uploads = evil(BLINDED), []
    for _ in range(2):
        begun_blinded(server)
        uploads.append(of(server, Embedding)[0].value.value)
        server.again()
    apart = (uploads[0] - uploads[1]).to(torch.float64).abs() / 2.0**32
    assert 0.1 < float(apart.mean()) < 0.5, "as two independent integers"


@pytest.mark.parametrize(
    "starts",
    [
        [{}, {}],
        [{"at": -1e9}],
        [{"since_s": 100.0}],
        [{"machine": "another", "since_s": 100.0}],
    ],
    ids=["twice", "long ago", "in the middle", "in the middle, from another machine"],
)
def test_a_run_starts_once_and_after_the_client_is_ready(starts: list[dict[str, Any]], evil: Make) -> None:
    server = evil(PLAIN)
    server.prepare()
    for said in starts:
        server.start(**said)
    assert "the server starts the run" in server.refused()


# --- the protocol -----------------------------------------------------------------------------------------------------


def test_a_round_is_answered_once(evil: Make) -> None:
    server = evil(NOISY)
    server.begin()
    server.send(gradient(server, 0))
    server.until(lambda: len(of(server, Embedding)) == 2)
    server.send(gradient(server, 0))
    assert "server sent a 'gradient' message of round 0" in server.refused(lambda: len(of(server, Embedding)) > 2)


def test_no_more_rounds_are_played_than_the_scenario_has(evil: Make) -> None:
    server = evil(PLAIN, stop={"rounds": 2})
    server.begin()
    for k in range(3):
        server.send(gradient(server, k))
        server.until(lambda k=k: len(of(server, Embedding)) == k + 2)  # type: ignore[misc]
    server.send(gradient(server, 3))
    assert "allowed: 2 rounds, by stop.rounds" in server.refused(lambda: len(of(server, Embedding)) > 4)


def test_every_embedding_is_counted_where_noise_protects_it_whatever_gradients_the_server_chooses(evil: Make) -> None:
    server = evil(NOISY)
    server.begin()
    for k in range(3):
        server.send(gradient(server, k, value=1e3))
        server.until(lambda k=k: len(of(server, Embedding)) == k + 2)  # type: ignore[misc]
    sent = of(server, Embedding)
    assert [each.batch for each in server.of(NoiseAdded)] == [(each.batch.origin, each.batch.index) for each in sent]
    noise = NOISE["noise_multiplier"] * 2 * NOISE["clip"]
    assert all(float(each.value.value.std()) < 2 * noise for each in sent), "embeddings are bounded"


@pytest.mark.parametrize("rows", [[3], [3, 3, 3, 3], [0, 1, 2]], ids=["one row", "a row repeated", "rows of no batch"])
def test_queries_about_rows_of_the_servers_choice_are_refused(rows: list[int], evil: Make) -> None:
    server = evil({**QUERIED, "mechanism": NOISE}, training__batches="own")
    server.begin()
    server.send(Query(Batch(0, np.array(rows), origin=1), round=0))
    assert "rows that are no batch 0 of party 1" in server.refused(lambda: bool(of(server, Answer)))


def test_a_query_that_is_repeated_is_counted_again_under_noise(evil: Make) -> None:
    server = evil({**QUERIED, "mechanism": NOISE})
    server.begin()
    for _ in range(4):
        server.send(Query(server.sequence.batch(0), round=0))
    server.until(lambda: len(of(server, Answer)) == 4)
    assert len(server.of(NoiseAdded)) == 5
    answered = [each.value.value for each in of(server, Answer)]
    assert not torch.equal(answered[0], answered[1])


def test_a_query_that_is_repeated_without_noise_shows_the_same(evil: Make) -> None:
    server = evil(QUERIED)
    server.begin()
    for _ in range(3):
        server.send(Query(server.sequence.batch(0), round=0))
    server.until(lambda: len(of(server, Answer)) == 3)
    first, *others = (each.value.value for each in of(server, Answer))
    assert all(torch.equal(first, other) for other in others)


def test_a_blinded_upload_is_the_same_integers_again_and_an_earlier_one_is_refused(
    evil: Make,
) -> None:
    availability = {"kind": "intervals", "interrupted": "lost", "down": [["40 s", "41 s"], ["50 s", "51 s"]]}
    server = evil(BLINDED, timing={"clients": [{"select": "1", "availability": availability}]})
    begun_blinded(server)
    server.tell(CameUp(number=1, round=0, at=41.0))
    server.until(lambda: len(of(server, Embedding)) == 2)
    first, again = (each.value.value for each in of(server, Embedding))
    assert torch.equal(first, again)
    server.send(gradient_of_blinded(server, 0))
    server.until(lambda: len(of(server, Embedding)) == 3)
    server.tell(CameUp(number=2, round=0, at=51.0))
    server.until(lambda: bool(server.of(Failed)))
    assert "batch 0 is to be blinded after batch 1: its mask has served" in server.of(Failed)[0].what


def gradient_of_blinded(server: EvilServer, k: int) -> Gradient:
    shape = of(server, Embedding)[-1].value.shape
    return Gradient(value=ready_value(torch.zeros(shape, dtype=torch.float64)), round=k)


def test_keys_that_their_owners_have_not_signed_are_refused(evil: Make) -> None:
    server = evil(BLINDED)
    server.prepare()
    keys = server.vouch_for_others()
    server.start()
    server.until(lambda: bool(server.messages))
    keys[1] = bytes(32)
    server.send(PublicKeys(value=ready_value(torch.tensor([[*key] for key in keys], dtype=torch.uint8))))
    server.until(lambda: bool(server.of(Failed)))
    assert "the public key of client 2 is not the one that it has signed" in server.of(Failed)[0].what
    assert not of(server, Embedding)


@pytest.mark.parametrize("failed", [True, False])
def test_a_client_hears_that_the_study_has_ended_together_with_the_end_of_a_run(failed: bool, evil: Make) -> None:
    server = evil(BLINDED if failed else PLAIN)
    if failed:
        server.prepare()
        server.start()
        server.until(lambda: bool(server.messages))
        server.send(PublicKeys(value=ready_value(torch.zeros((2, 32), dtype=torch.uint8))))
        server.until(lambda: bool(server.of(Failed)))
    else:
        server.begin()
    server.tell_at_once(*([] if failed else [Stopped(reason="rounds")]), Done(), Bye())
    assert server.ended() is None


def test_a_voucher_that_another_party_has_signed_is_refused(evil: Make) -> None:
    server = evil(BLINDED)
    server.prepare()
    own = server.of(Ready)[0].voucher
    server.tell(own.model_copy(update={"party": 2}))
    assert "the public key of client-2 is not signed by it" in server.refused()


# --- other control messages -------------------------------------------------------------------------------------------


DIGEST, VOUCHER = "a" * 64, Voucher(party=1, key="a" * 64, signature="aa", certificate="")
NOT_THE_SERVERS: list[Control] = [
    Welcome(), Refused(why=""), Hello(party=1, scenario=DIGEST, rows=DIGEST, version="1", machine=""), Ready(),
    Introduced(port=1, facts={}), Joined(protocol="only", seed=0), Counted(updates=1), NoiseAdded(batch=None),
    Passing(to=1, message="x", round=0, size=1, at=0.0), Spent(at=0.0), Withdrawn(number=0), WentDown(), Written(),
    Failed(what=""), Prepare(protocol="only", seed=0, run="2" * 16),
    Peer(party=2, host="127.0.0.1", port=1, facts={}),
]  # fmt: skip
OF_OTHER_RUNS: list[Control] = [
    IsDue(sender=2, number=0, at=0.0), Dropped(sender=2, number=0), CameUp(number=1, round=0, at=0.0),
    Away(party=2, at=0.0), Back(party=2, at=0.0),
]  # fmt: skip


@pytest.mark.parametrize("message", [*NOT_THE_SERVERS, *OF_OTHER_RUNS], ids=lambda message: message.kind)
def test_what_no_server_says_in_such_a_run_ends_it(message: Control, evil: Make) -> None:
    server = evil(PLAIN)
    server.begin()
    server.tell(message)
    assert message.kind in server.refused() or isinstance(message, CameUp)
    assert len(server.messages) == 1


def test_clients_are_introduced_with_the_facts_of_the_protocol_alone(evil: Make) -> None:
    server = evil({"kind": "fedvs", "K": 1}, clients=3)
    server.tell(Prepare(protocol="only", seed=0, run="0" * 16))
    server.until(lambda: bool(server.of(Introduced)))
    assert [*server.of(Introduced)[0].facts] == ["magnitude"]
    for party in (2, 2):
        server.tell(Peer(party=party, host="127.0.0.1", port=1, facts={"magnitude": 1.0}))
    server.until(lambda: bool(server.of(Failed)))
    assert server.of(Failed)[0].what == "the server introduces [2]"


def test_a_client_evaluates_after_the_end_of_a_run_and_no_longer_after_the_last_evaluation(evil: Make) -> None:
    server = evil(PLAIN)
    server.begin()
    server.tell(Stopped(reason="rounds"), evaluation(1))
    server.ask(1)
    server.until(lambda: answers(server) == 1)
    server.end_run()
    server.tell(evaluation(2), Start(in_s=0.0, at=0.0, machine=machine()))
    server.ask(2)
    server.close()
    assert answers(server) == 1
