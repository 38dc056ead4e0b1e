"""CELU-VFL: its cache, its weights, its updates, and its equality with synchronous training where R = 1."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from closed_forms_of import reason
from in_events_order import computations, gradients_of
from plain_training import Plain
from three_clients import three_clients
from tiny_worlds import EAGER, RANDOM_TIMING, data_of, events, metrics, rounds, run, same_times, same_weights, tiny
from torch import Tensor

from vflsim.protocols.celu_vfl import MessageCache, weights_of
from vflsim.recurrences.caching import Caches
from vflsim.scenario import load
from vflsim.vocabulary.execution_options import USUAL, Execution

both = pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])
IDLE: dict[str, Any] = {
    "server": {"compute": "1 ms"},
    "clients": [{"select": "all", "compute": "2 ms", "upload_delay": "20 ms"}],
}


@pytest.mark.sampled(2)
@both
@pytest.mark.parametrize("aggregate", ["mean", "concat"])
def test_one_use_is_synchronous_training_to_the_bit(aggregate: str, execution: Execution) -> None:
    protocols = {"celu": {"kind": "celu_vfl", "cache": 3, "uses": 1}, "wait": {"kind": "synchronous"}}
    scenario = tiny(protocols, timing=RANDOM_TIMING, models__aggregate=aggregate)
    one, other = (run(scenario, name, execution=execution) for name in protocols)
    assert same_weights(one, other)
    assert same_times(one, other)
    assert metrics(one).equals(metrics(other))


def test_weights_by_hand() -> None:
    """cos 0° = 1, cos 45° = .707, cos 60° = .5 (kept at ξ = .5), cos 90° and a row of zeros: 0, cos 180°: 0."""
    now = torch.tensor([[2.0, 0], [1, 1], [1, math.sqrt(3)], [0, 3], [0, 0], [-1, 0]], dtype=torch.float64)
    cached = torch.tensor([[1.0, 0]] * 6, dtype=torch.float64)
    weights = weights_of(now, cached, 0.5 - 1e-12).flatten().tolist()
    assert weights == pytest.approx([1, math.sqrt(0.5), 0.5, 0, 0, 0])
    assert weights_of(now, cached, 0.6).flatten().tolist() == pytest.approx([1, math.sqrt(0.5), 0, 0, 0, 0])


def test_an_entry_rests_for_the_steps_of_the_others() -> None:
    cache = MessageCache[str](size=3, uses=3)
    for number, name in enumerate("abc"):
        cache.put(name, exchange=number)
    assert [cache.take() for _ in range(8)] == ["a", "b", "c", "a", "b", "c", None, None]


def test_an_entry_is_not_used_while_too_few_others_have_been() -> None:
    cache = MessageCache[str](size=3, uses=9)
    cache.put("a", exchange=0)
    assert cache.take() is None
    cache.put("b", exchange=1)
    assert cache.take() is None  # a was used two steps ago, b one
    cache.put("c", exchange=2)
    assert cache.take() == "a"


def test_a_full_cache_drops_its_oldest_entry() -> None:
    cache = MessageCache[str](size=2, uses=9)
    for number, name in enumerate("abcd"):
        cache.put(name, exchange=number)
    assert len(cache) == 2
    assert [cache.take() for _ in range(4)] == ["c", "d", "c", "d"]


def test_an_old_entry_is_dropped_with_the_next_exchange() -> None:
    cache = MessageCache[str](size=2, uses=2)
    cache.put("a", exchange=0)
    cache.put("b", exchange=5)  # more than W · R = 4 exchanges later
    assert len(cache) == 1


def test_a_cache_of_one_entry_gives_the_steps_of_fedbcd() -> None:
    cache = MessageCache[int](size=1, uses=4)
    steps = []
    for t in range(3):
        cache.put(t, exchange=t)
        while (again := cache.take()) is not None:
            steps.append(again)
    assert steps == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_local_steps_fill_the_time_in_which_messages_are_under_way() -> None:
    """Rounds of 2 + 20 + 1 + 2 ms: a client has 21 ms for local steps of 2 ms from the beginning of each upload."""
    protocol = {"kind": "celu_vfl", "cache": 1, "uses": 100}
    scenario = tiny({"it": protocol}, timing=IDLE, partition__clients=1, stop={"rounds": 4})
    outcome = run(scenario, timing_only=True)
    # The last local step begins at 20 of the 21 ms, and delays the step on the gradient by 1 ms.
    assert [round(1e3 * end, 6) for end in rounds(outcome)["end_s"]] == [23, 48, 74, 100]
    steps = events(outcome, "compute.client_step")["start_s"] * 1e3
    assert [round(start, 6) for start in steps[:14]] == [23, *range(27, 49, 2), 49, 53]
    assert "at a cached step" in reason(scenario)  # a law of rounds that wait does not show it


@pytest.mark.sampled(1)
@pytest.mark.parametrize("aggregate", ["mean", "concat"])
@both
def test_many_rounds_are_those_of_the_equations(many: int, aggregate: str, execution: Execution) -> None:
    """Caches, cosines and weighted losses by themselves, in the order of the run's computations."""
    size, uses, least = 3, 4, math.cos(math.radians(40))
    said = three_clients(
        {"kind": "celu_vfl", "cache": size, "uses": uses, "angle": 40},
        timing=RANDOM_TIMING, models__aggregate=aggregate, stop={"rounds": many},
        evaluate={"every": f"{many} rounds"},
    )  # fmt: skip
    scenario = load(said)
    outcome, plain = run(scenario, execution=execution), Plain(said, scenario, "it", 0, data_of(scenario))
    sent: list[dict[int, Tensor]] = []
    held: list[dict[int, Tensor]] = []
    used: dict[int, list[int]] = {party: [] for party in (0, *plain.clients)}
    fresh = dict.fromkeys(used, 0)
    dropped = 0

    def next_cached(party: int) -> int:
        """The entry of the latest ``size``, used fewer than ``uses`` times, that has rested longest."""
        steps = used[party]
        free = [t for t in range(max(0, fresh[party] - size), fresh[party])
                if steps.count(t) < uses and t not in steps[len(steps) - (size - 1):]]  # fmt: skip
        return min(free, key=lambda t: len(steps) - 1 - steps[::-1].index(t))

    order = computations(outcome)
    waiting = dict.fromkeys(plain.clients, False)  # for the gradient of what was sent last
    for party, kind in order:
        if kind == "embed":
            t = fresh[party]
            sent.extend({} for _ in range(t + 1 - len(sent)))
            sent[t][party], waiting[party] = plain.embed(party, plain.ids(1, t)).detach(), True
        elif kind == "server_step":
            t = fresh[0]
            _, by_h, by_top = gradients_of(plain, [sent[t][m] for m in plain.clients], plain.ids(1, t))
            held.append(dict(zip(plain.clients, by_h, strict=True)))
            plain.step(0, by_top)
            used[0].append(t)
            fresh[0] += 1
        elif kind == "local_step":
            t = next_cached(0)
            ids = plain.ids(1, t)
            hs = [sent[t][m].clone().requires_grad_() for m in plain.clients]
            now = torch.cat(torch.autograd.grad(plain.loss(hs, ids), hs), 1)
            cos = rows_cosine(now, torch.cat([held[t][m] for m in plain.clients], 1))
            dropped += int((cos < least).sum())
            w = torch.where(cos >= least, cos, 0)
            losses = torch.stack([plain.loss([h[i : i + 1] for h in hs], ids[i : i + 1]) for i in range(len(ids))])
            plain.step(0, torch.autograd.grad((w * losses).mean(), plain.weights[0]))
            used[0].append(t)
        else:
            is_fresh = waiting[party] and len(held) > fresh[party] and steps_on_arrival(outcome, party, used[party])
            t = fresh[party] if is_fresh else next_cached(party)
            h = plain.embed(party, plain.ids(1, t))
            gradient = held[t][party]
            if is_fresh:
                fresh[party], waiting[party] = t + 1, False
            else:
                cos = rows_cosine(h.detach(), sent[t][party])
                dropped += int((cos < least).sum())
                gradient = gradient * torch.where(cos >= least, cos, 0)[:, None]
            plain.step(party, torch.autograd.grad((h * gradient).sum(), plain.weights[party]))
            used[party].append(t)
    assert dropped > 0
    assert len(used[0]) > many * 1.5
    assert all(len(used[m]) > many * 1.5 for m in plain.clients)
    assert plain.furthest(dict(outcome.weights)) <= 1e-10


def rows_cosine(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum(1) / (one.norm(dim=1) * other.norm(dim=1))


def steps_on_arrival(outcome: Any, party: int, before: list[int]) -> bool:
    """Whether a client's next step, after those ``before``, began when the gradient of its latest batch was here."""
    log = events(outcome, party=f"client-{party}")
    steps = log[log["kind"] == "compute.client_step"].sort_values("end_s", kind="stable")
    start = steps["start_s"].iloc[len(before)]
    embedded = log[(log["kind"] == "compute.embed") & (log["end_s"] <= start)]
    down = events(outcome, "transfer.gradient")
    arrivals = down[down["peer"] == f"client-{party}"]["end_s"]
    return bool((arrivals <= start).sum() >= len(embedded))


PARTIES = 5


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("uses", [1, 2, 5])
def test_each_party_takes_what_its_own_cache_would_give_it(size: int, uses: int) -> None:
    pick, together = random.Random(size * uses), Caches(size, uses, PARTIES)
    alone = [MessageCache[int](size, uses) for _ in range(PARTIES)]
    taken = 0
    for exchange in range(60):
        for _ in range(pick.randint(0, 4)):
            whose = np.array([pick.random() < 0.6 for _ in range(PARTIES)]) & together.ready
            found = together.take(whose)
            for party in np.flatnonzero(whose).tolist():
                assert alone[party].take() == found[party]
            taken += int(whose.sum())
        together.put(exchange)
        for cache in alone:
            cache.put(exchange, exchange)
    while together.ready.any():
        found = together.take(together.ready.copy())
        assert {cache.take() for cache in alone} <= {None, *found.tolist()}
    assert [cache.take() for cache in alone] == [None] * PARTIES
    assert (taken > 0) == (uses > 1)
