"""LASER-VFL: its losses by enumeration, its updates, late and missing embeddings, and the scores of its heads."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations, product
from typing import Any

import pytest
import torch
from plain_training import LEARNING, SERVERS, Plain
from three_clients import three_clients
from tiny_worlds import EAGER, apart, data_of, events, learners, metrics, rounds, run, tiny
from torch import Tensor
from torch.nn import functional as F

from vflsim.errors import ScenarioError
from vflsim.learning.batches import BatchSequence
from vflsim.protocols.laser_vfl import SubsetServer
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.vocabulary.execution_options import USUAL, Execution

LASER = {"kind": "laser_vfl"}
LINEAR = {"kind": "linear"}


def server_of(scenario: Scenario) -> SubsetServer:
    server: SubsetServer = learners(scenario, "it", 0, data_of(scenario))[0]
    return server


def subsets(parties: list[int]) -> list[tuple[int, ...]]:
    return list(chain.from_iterable(combinations(parties, size) for size in range(1, len(parties) + 1)))


def test_the_mean_over_all_draws_is_the_sum_over_all_subsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three parties each head has two sets of two to draw from: eight draws in all, equally likely."""
    scenario = load(three_clients(LASER))
    server, data = server_of(scenario), data_of(scenario)
    batch = batches(scenario).batch(0)
    h = {place: torch.randn(len(batch), 5, dtype=torch.float64, generator=_seeded(place)) for place in range(3)}
    y = data.labels["train"][batch.tensor()]

    def loss(chosen: tuple[int, ...], head: int) -> Tensor:
        mean = torch.stack([h[place] for place in chosen]).mean(0)
        return F.cross_entropy(server.top.module.heads[head](mean), y)  # type: ignore[union-attr, index, operator]

    expected = sum(torch.stack([loss(chosen, head) for head in chosen]).mean() for chosen in subsets([0, 1, 2]))
    totals = []
    for seconds in product(*[[each for each in range(3) if each != head] for head in range(3)]):
        orders = [[[second, *[e for e in range(3) if e != second]]] * 3 for second in seconds]
        monkeypatch.setattr(server, "_orders", lambda _batch, orders=orders: orders)
        totals.append(server.total_loss(batch, h))
    assert len(totals) == 8
    assert float((torch.stack(totals).mean() - expected).detach()) == pytest.approx(0, abs=1e-12)


def batches(scenario: Scenario) -> BatchSequence:
    return BatchSequence(data_of(scenario).rows, scenario.training_of("it"), 0, -1)


def _seeded(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def test_draws_are_uniform_over_the_sets_of_a_size() -> None:
    """χ² of 1,500 sets of 2 of 4 with party 0: three equally likely ones; 13.8 has a probability of .001."""
    scenario = tiny({"it": LASER})
    server = server_of(scenario)
    sequence = batches(scenario)
    counts = dict.fromkeys([(0, 1), (0, 2), (0, 3)], 0)
    for k in range(1500):
        sets = [tuple(chosen) for _, chosen in server._sets(0, [0, 1, 2, 3], server._orders(sequence.batch(k)))]
        assert [len(chosen) for chosen in sets] == [1, 2, 3, 4]
        counts[sets[1]] += 1
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 13.8


@pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])
def test_many_rounds_are_those_of_the_equations(many: int, execution: Execution) -> None:
    said = three_clients(LASER, models__server=LINEAR, stop={"updates": 3 * many}, evaluate={"every": f"{many} rounds"})
    scenario = load(said)
    outcome, oracle = run(scenario, execution=execution), Oracle(said, scenario)
    losses = [oracle.round(t, oracle.plain.clients) for t in range(many)]
    assert metrics(outcome)["train_loss"].iloc[1] == pytest.approx(sum(losses) / many, abs=1e-10)
    assert oracle.furthest(dict(outcome.weights)) <= 1e-10
    assert many < LEARNING or losses[-1] < losses[0] - 0.5


class Oracle:
    """Clients and heads as lists of tensors; the sets are those that the server draws."""

    def __init__(self, said: dict[str, Any], scenario: Scenario) -> None:
        self.server = server_of(scenario)
        self.plain = Plain(said, scenario, "it", 0, data_of(scenario))
        self.heads = [self.plain.weights[0][2 * place : 2 * place + 2] for place in range(len(self.plain.clients))]

    def round(self, t: int, here: list[int]) -> float:
        plain = self.plain
        batch = plain.sequences[1].batch(t)
        ids, places = torch.tensor(batch.ids), [m - 1 for m in here]
        hs = {place: plain.embed(place + 1, ids) for place in places}
        orders = self.server._orders(batch)
        total = torch.zeros((), dtype=torch.float64)
        for place in places:
            for weight, chosen in self.server._sets(place, places, orders):
                mean = sum(hs[each] for each in chosen) / len(chosen)
                logits = SERVERS["linear"](self.heads[place], mean)  # type: ignore[arg-type]
                total = total - weight * F.log_softmax(logits, 1)[torch.arange(len(ids)), plain.y[ids]].mean()
        flat = [*plain.weights[0], *[w for m in here for w in plain.weights[m]]]
        found = list(torch.autograd.grad(total, flat, allow_unused=True))
        gradients = [torch.zeros_like(w) if g is None else g for w, g in zip(flat, found, strict=True)]
        plain.step(0, gradients[: len(plain.weights[0])])
        rest = iter(gradients[len(plain.weights[0]) :])
        for m in here:
            plain.step(m, [next(rest) for _ in plain.weights[m]])
        return float(total.detach())

    def furthest(self, found: dict[str, Tensor]) -> float:
        return self.plain.furthest(found)


def test_a_late_client_is_masked_and_joins_the_round_in_progress() -> None:
    """The deadline of 12 ms passes client 3 over: it takes 20 ms for an upload."""
    timing = {
        "server": {"compute": "1 ms"},
        "clients": [{"select": "all", "compute": "2 ms"}, {"select": "3", "upload_delay": "20 ms"}],
    }
    said = three_clients(
        {**LASER, "deadline": "12 ms"}, models__server=LINEAR, timing=timing, stop={"rounds": 8},
    )  # fmt: skip
    scenario = load(said)
    outcome, oracle = run(scenario), Oracle(said, scenario)
    down = events(outcome, "transfer.gradient")
    assert len(down[down["peer"] == "client-3"]) >= 7  # each round's end is told to everybody
    stepped = set(events(outcome, "compute.client_step")["party"])
    assert stepped == {"client-1", "client-2"}
    for t in range(8):
        oracle.round(t, [1, 2])
    # The run ends with the server's step of round 7, before the clients' steps.
    names = [name for name in outcome.weights if name.startswith("server")]
    ours = dict(zip(oracle.plain.names[0], oracle.plain.weights[0], strict=True))
    assert max(float((outcome.weights[name] - ours[name].detach()).abs().max()) for name in names) <= 1e-10
    assert (1e3 * rounds(outcome)["end_s"]).to_list() == pytest.approx([13.0 * k for k in range(1, 9)])


def test_rows_that_a_party_lacks_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows 0 and 1 have all three parties, row 2 party 1 alone, row 3 parties 0 and 2, row 4 nobody."""
    scenario = load(three_clients(LASER))
    server, data = server_of(scenario), data_of(scenario)
    batch = batches(scenario).batch(0)
    present = torch.zeros(data.rows, 3, dtype=torch.bool)
    first = batch.tensor()[:5]
    present[first[:2]] = True
    present[first[2], 1] = True
    present[first[3], [0, 2]] = True
    server.parts = replace(server.parts, present={"train": present, "test": present})
    h = {place: torch.randn(len(batch), 5, dtype=torch.float64, generator=_seeded(place)) for place in range(3)}
    orders = server._orders(batch)
    expected = torch.zeros((), dtype=torch.float64)
    for row, observed in [(0, [0, 1, 2]), (1, [0, 1, 2]), (2, [1]), (3, [0, 2])]:
        target = data.labels["train"][first[row]]
        for head in observed:
            for weight, chosen in server._sets(head, observed, orders):
                mean = torch.stack([h[place][row] for place in chosen]).mean(0)
                logits = server.top.module.heads[head](mean)  # type: ignore[union-attr, index, operator]
                expected = expected + weight * F.cross_entropy(logits[None], target[None]) / len(batch)
    assert float((server.total_loss(batch, h) - expected).detach()) == pytest.approx(0, abs=1e-12)


def test_a_score_is_the_mean_over_the_heads() -> None:
    outcome = run(tiny({"it": LASER}, stop={"rounds": 40}))
    last = metrics(outcome).iloc[-1]
    for metric in ("test_loss", "test_accuracy"):
        own = [last[f"{metric}.client-{m}"] for m in range(1, 5)]
        assert last[metric] == pytest.approx(sum(own) / 4)
    assert len({last[f"test_loss.client-{m}"] for m in range(1, 5)}) == 4


def test_an_active_server_has_a_head_of_its_own() -> None:
    active: dict[str, Any] = {
        "partition": {"clients": 3, "by": "columns", "active": True},
        "models__active": {"kind": "linear", "embedding": 6},
        "stop": {"rounds": 30},
    }
    scenario = tiny({"it": LASER}, **active)
    outcome = run(scenario)
    assert {"test_accuracy.server", "test_accuracy.client-3"} <= set(metrics(outcome))
    losses = metrics(outcome)["train_loss"].dropna()
    assert losses.iloc[-1] < losses.iloc[0]
    assert apart(outcome, run(scenario, execution=EAGER)) <= 1e-12


@pytest.mark.parametrize(
    ("keys", "changes", "why"),
    [
        ({}, {"models__aggregate": "concat"}, "heads predict from the mean of embeddings, not their concat"),
        ({"fastest": 5}, {}, r"fastest: 5 of 4 clients\s+allowed: 1 to 4"),
        ({"fastest": 2, "deadline": "1 s"}, {}, "fastest or deadline, not both"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_scenario_is_loaded(
    keys: dict[str, Any], changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(ScenarioError, match=why):
        tiny({"it": {**LASER, **keys}}, **changes)
