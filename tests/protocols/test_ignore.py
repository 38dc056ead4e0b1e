"""Going on without the stragglers, on delays that never change: every round can be written down."""

import math

import pytest
import torch
from plain_training import Plain
from pydantic import ValidationError
from tiny_worlds import data_of, events, metrics, raw, rounds, run, same_weights, tiny

from vflsim.errors import ScenarioError
from vflsim.protocols import Ignore, Synchronous
from vflsim.scenario import load

# Embedding 1 s, client's step 1 s, server's step 1 s; links take no time; client m's upload delay is `delays[m - 1]`.
SECOND = {"select": "all", "compute": "1 s"}


def timing(*delays: float) -> dict:
    own = [{"select": str(m), "upload_delay": f"{delay} s"} for m, delay in enumerate(delays, start=1)]
    return {"server": {"compute": "1 s"}, "clients": [SECOND, *own]}


def ignoring(stop: int, delays: tuple[float, ...], **said: object) -> dict:
    return raw(
        {"ignore": {"kind": "ignore", **said}},
        timing=timing(*delays),
        stop={"rounds": stop},
        partition={"clients": len(delays), "by": "columns"},
    )


def trace(outcome: object) -> list[tuple[float, list[int], list[int]]]:
    """(end, used, missing) of every round."""
    table = rounds(outcome)
    return [
        (end, sorted(used), sorted(missing)) for end, used, missing in table[["end_s", "used", "missing"]].to_numpy()
    ]


def test_fastest_uses_the_first_n_and_a_dropped_client_joins_the_round_that_is_current_when_it_finishes() -> None:
    outcome = run(load(ignoring(5, (0, 1, 6), fastest=2)))
    # Round 0: arrivals at 1, 2, (7); step done at 3; clients 1 and 2 step until 4 and embed until 5.
    # Round 1: arrivals at 5, 6; step done at 7. Client 3 arrives at 7 with round 0, is told at once, joins round 2.
    # Round 2: arrivals at 9, 10 (client 3 embeds until 8, uploads until 14); done at 11.
    # Round 3: 13, 14; done at 15. Client 3 arrives at 14 with round 2: its gradient of rounds 2 came at 11, so it joins
    # round 3 at 14 and will arrive at 21; round 4: 17, 18; done at 19.
    assert trace(outcome) == [(3 + 4 * k, [1, 2], [3]) for k in range(5)]
    mine = events(outcome, "compute.embed", "client-3")
    assert list(zip(mine["start_s"], mine["index"], strict=True)) == [(0, 0), (7, 1), (14, 2)]
    uploads = events(outcome, "upload", "client-3")
    assert list(uploads["round"]) == [0, 2, 3]
    assert len(events(outcome, "compute.client_step", "client-3")) == 0
    assert metrics(outcome)["updates"].iloc[-1] == 2 * 4


def test_a_client_dropped_once_is_used_again_when_it_is_fast_enough() -> None:
    # Client 2's first delay drops it; client 3 is dropped in round 1, when client 2 is back before it.
    said = ignoring(3, (0, 4.5, 1), fastest=2)
    outcome = run(load(said))
    # Round 0: client 1 at 1, client 3 at 2, done at 3. Client 2 arrives at 5.5, joins round 1 (told of round 0 at 3).
    # Round 1: client 1 at 5, client 3 at 6, done at 7. Round 2: 9 and 10, done at 11; client 2 arrives at 11.
    assert trace(outcome) == [(3, [1, 3], [2]), (7, [1, 3], [2]), (11, [1, 3], [2])]
    assert list(events(outcome, "upload", "client-2")["round"]) == [0, 1]


def test_clients_that_arrive_in_the_same_instant_are_taken_in_their_order() -> None:
    outcome = run(load(ignoring(3, (1, 1, 1), fastest=2)))
    # Round 0: everybody at 2. Client 3 has no step to do: it arrives at 5, clients 1 and 2 at 6.
    # Round 1: client 3, and client 1 before client 2. Now client 2 has no step to do: it arrives at 9, they at 10.
    assert [used for _, used, _ in trace(outcome)] == [[1, 2], [1, 3], [1, 2]]


def test_deadline_uses_what_arrived_in_time() -> None:
    outcome = run(load(ignoring(3, (0, 1, 2.5), deadline="2 s")))
    # Round 0, from 0 until 2: arrivals at 1 and 2 (a message beats a timeout of the same instant); done at 3. Client 3
    # arrives at 3.5 with round 0 and joins round 1: it embeds until 4.5 and arrives at 7.
    # Round 1, from 3 until 5: client 1 arrives at 5 (step until 4, embed until 5); done at 6 with client 1 alone, the
    # instant at which client 2 arrives, too late.
    # Round 2, from 6 until 8: client 1 arrives at 8 (step until 7, embed until 8), and so does client 2 (embed until 7,
    # upload until 8); done at 9. Client 3 arrives at 7 with round 1, too late.
    assert trace(outcome) == [(3, [1, 2], [3]), (6, [1], [2, 3]), (9, [1, 2], [3])]


def test_a_deadline_that_nobody_meets_waits_for_the_first() -> None:
    outcome = run(load(ignoring(2, (4, 6, 9), deadline="2 s")))
    # Round 0: nobody by 2; client 1 arrives at 5; done at 6. Client 2 arrives at 7: round 1, from 7, arrives at 14.
    # Round 1: from 6, nobody by 8; client 1 (step until 7, embed until 8) arrives at 12; done at 13.
    assert trace(outcome) == [(6, [1], [2, 3]), (13, [1], [2, 3])]


def test_a_deadline_with_time_for_all_is_synchronous() -> None:
    said = ignoring(12, (0, 1, 2), deadline="60 s")
    said["protocols"]["wait"] = {"kind": "synchronous"}
    both = load(said)
    one, other = run(both, "ignore"), run(both, "wait")
    assert one.tables == other.tables
    assert same_weights(one, other)


def test_others_can_be_left_out_where_clients_are_excluded_for_good() -> None:
    assert Synchronous().without((2, 3)) == Ignore(exclude=(2, 3)) == Ignore(exclude="1").without((2, 3))
    with pytest.raises(ValueError, match="cannot leave clients out"):
        Ignore(fastest=2).without((3,))


def test_an_excluded_client_is_absent_from_training_aggregate_and_evaluation() -> None:
    said = ignoring(10, (0, 0, 0, 0), exclude="2,4")
    outcome = run(load(said))
    assert outcome.info.participants == (1, 3)
    assert set(events(outcome)["party"]) == {"server", "client-1", "client-3"}
    assert all(
        sorted(used) == [1, 3] and not len(missing) for used, missing in rounds(outcome)[["used", "missing"]].to_numpy()
    )
    assert not any(name.startswith(("client-2.", "client-4.")) for name in outcome.weights)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("aggregate", ["mean", "sum", "max", "concat", "weighted"])
def test_excluding_clients_is_training_without_them(aggregate: str) -> None:
    said = ignoring(0, (0, 0, 0, 0), exclude="2,4")
    said["models"]["aggregate"] = aggregate
    said["stop"] = {"updates": 2 * 20}
    scenario = load(said)
    outcome = run(scenario)
    plain = Plain(said, scenario, "ignore", 0, data_of(scenario))
    assert plain.clients == [1, 3]
    for k in range(20):
        plain.synchronous_step(plain.ids(1, k))
    assert plain.furthest(dict(outcome.weights)) <= 1e-12
    assert plain.test_loss() == pytest.approx(metrics(outcome)["test_loss"].iloc[-1], abs=1e-12)


def missing_for(
    aggregate: str, hs: dict[int, torch.Tensor], clients: list[int], shares: list[int], width: int
) -> torch.Tensor:
    """What the server sees when only ``hs`` are there, written out for each aggregate."""
    here = [hs[m] for m in clients if m in hs]
    if aggregate == "concat":
        zeros = torch.zeros(len(here[0]), width, dtype=torch.float64)
        return torch.cat([hs.get(m, zeros) for m in clients], 1)
    if aggregate == "max":
        lowest = torch.full_like(here[0], -math.inf)
        return torch.stack([hs.get(m, lowest) for m in clients]).amax(0)
    weights = [share if aggregate == "weighted" else 1 for m, share in zip(clients, shares, strict=True) if m in hs]
    total = sum(w * h for w, h in zip(weights, here, strict=True))
    return total / (1 if aggregate == "sum" else sum(weights))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("aggregate", ["mean", "sum", "max", "concat", "weighted"])
def test_missing_embeddings_follow_the_rule_of_the_aggregate_and_dropped_clients_get_no_gradient(
    aggregate: str,
) -> None:
    said = ignoring(12, (), deadline="3 s")
    said["partition"]["clients"] = 3
    said["timing"]["clients"].append({"select": "all", "upload_delay": {"kind": "exponential", "mean": "2 s"}})
    said["models"]["aggregate"] = aggregate
    scenario = load(said)
    outcome = run(scenario)
    plain = Plain(said, scenario, "ignore", 0, data_of(scenario))
    steps = {
        m: len(events(outcome, "compute.client_step", f"client-{m}").query("outcome == 'done'")) for m in plain.clients
    }
    patterns = set()
    for k, used in enumerate(rounds(outcome)["used"]):
        patterns.add(tuple(sorted(used)))
        ids = plain.ids(1, k)
        hs = {m: plain.embed(m, ids) for m in used}
        joint = missing_for(aggregate, hs, plain.clients, plain.shares, plain.widths[1])
        logits = plain.server(plain.weights[0], joint)
        loss = torch.nn.functional.cross_entropy(logits, plain.y[ids])
        parties = [0, *used]
        gradients = iter(torch.autograd.grad(loss, [w for party in parties for w in plain.weights[party]]))
        for party in parties:
            own = [next(gradients) for _ in plain.weights[party]]
            if party == 0 or steps[party] > 0:
                plain.step(party, own)
                steps[party] = steps.get(party, 0) - 1
    assert len(patterns) > 1, "somebody should be used in one round and missing in another"
    assert plain.furthest(dict(outcome.weights)) <= 1e-12
    # in evaluation everybody is present again
    assert plain.test_loss() == pytest.approx(metrics(outcome)["test_loss"].iloc[-1], abs=1e-12)


@pytest.mark.parametrize("said", [{}, {"exclude": "1", "fastest": 2}, {"fastest": 2, "deadline": 1.0}])
def test_exactly_one_rule_must_be_given(said: dict) -> None:
    with pytest.raises(ValidationError, match="exactly one of exclude, fastest and deadline"):
        Ignore(**said)


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"exclude": "all"}, "at least one must stay"),
        ({"fastest": 5}, "allowed: 1 to 4"),
        ({"exclude": "5"}, "outside the clients"),
    ],
)
def test_what_cannot_be_ignored_is_refused_when_the_scenario_is_loaded(said: dict, what: str) -> None:
    with pytest.raises(ScenarioError, match=what):
        tiny({"ignore": {"kind": "ignore", **said}})


def test_ignore_refuses_own_batches() -> None:
    with pytest.raises(ScenarioError, match="same batch"):
        tiny({"ignore": {"kind": "ignore", "fastest": 2}}, training__batches="own")
