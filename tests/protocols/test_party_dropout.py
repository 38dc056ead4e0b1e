"""Party-wise dropout: steps that leave clients out on purpose, by plain loops; times and bytes stay as they are."""

import math
from typing import Any

import pytest
import torch
from plain_training import learners
from protocols_by_kind import KINDS
from tiny_worlds import EAGER, RANDOM_TIMING, apart, data_of, run, same_times, tiny

from vflsim.errors import ScenarioError
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.learners.joint import PartyDropout
from vflsim.protocols import PROTOCOLS

ABLE = {protocol.model_fields["kind"].default for protocol in PROTOCOLS if protocol.traits.party_dropout}
TAKING = {name: said for name, said in KINDS.items() if said["kind"] in ABLE and "blinding" not in said}
RATE = {"party": 0.4}
ROUNDS = 12


def masks(rate: float, seed: int, parties: int, active: bool = False, batches: int = 2_000) -> torch.Tensor:
    """Who takes part in so many batches, (batches, parties)."""
    dropout = PartyDropout(rate, seed, active)
    sizes = torch.arange(4).numpy()
    return torch.stack([dropout.there(Batch(k, sizes), parties, "cpu") for k in range(batches)])


def test_clients_are_left_out_independently_and_at_least_one_stays() -> None:
    there = masks(0.4, seed=3, parties=6).double()
    stays = 1 - 0.4 + 0.4**6 / 6  # of those that would all be left out, one stays
    assert there.sum(1).min() >= 1
    assert (there.mean(0) - stays).abs().max() < 4 * math.sqrt(stays * (1 - stays) / len(there))
    both = (there[:, 0] * there[:, 1]).mean()
    assert abs(both - 0.36) < 4 * math.sqrt(0.36 * 0.64 / len(there))


def test_an_active_server_is_never_left_out_of_its_own_steps() -> None:
    there = masks(0.9, seed=0, parties=3, active=True)
    assert there[:, 0].all()
    assert not there[:, 1:].any(1).all()


def test_who_is_left_out_depends_on_the_seed_and_the_batch_alone() -> None:
    assert torch.equal(masks(0.4, 1, 5), masks(0.4, 1, 5))
    assert not torch.equal(masks(0.4, 1, 5), masks(0.4, 2, 5))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("aggregate", ["mean", "sum", "concat", "max"])
def test_training_equals_a_plain_loop_that_leaves_clients_out(aggregate: str) -> None:
    said = {"models__aggregate": aggregate, "stop": {"updates": 4 * ROUNDS}, "training__dropout": RATE}
    scenario = tiny(**said)
    data, outcome = data_of(scenario), run(scenario)
    server, clients = learners(scenario, "synchronous", 0, data)
    top, modules = server.top.module, {m: learner.model for m, learner in clients.items()}
    rules = [scenario.training.server_optimizer.build(top.parameters())]
    rules += [scenario.training.client_optimizer.build(module.parameters()) for module in modules.values()]
    batches = BatchSequence(data.rows, scenario.training, 0, -1)
    left_out = 0
    for k in range(ROUNDS):
        batch = batches.batch(k)
        there = PartyDropout(RATE["party"], 0).there(batch, len(modules), "cpu").tolist()
        left_out += there.count(False)
        ids = torch.tensor(batch.ids)
        hs = [module(data.features[m - 1]["train"][ids]) for m, module in modules.items()]
        kept = [h for h, stays in zip(hs, there, strict=True) if stays]
        zeros = [h if stays else torch.zeros_like(h) for h, stays in zip(hs, there, strict=True)]
        joined = {
            "mean": torch.stack(kept).mean(0),
            "sum": torch.stack(kept).sum(0),
            "concat": torch.cat(zeros, 1),
            "max": torch.stack(kept).amax(0),
        }[aggregate]
        loss = data.task.loss(top(joined), data.labels["train"][ids])
        for rule in rules:
            rule.zero_grad()
        loss.backward()
        for rule in rules:
            rule.step()
    assert left_out > ROUNDS / 2
    for m, module in modules.items():
        for name, tensor in module.state_dict().items():
            assert torch.allclose(tensor, outcome.weights[f"client-{m}.{name}"], rtol=0, atol=1e-12), (m, name)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TAKING)
def test_what_is_computed_together_is_what_is_computed_one_by_one(name: str) -> None:
    said: dict[str, Any] = {"timing": RANDOM_TIMING, "stop": {"updates": 36}, "training__dropout": RATE}
    scenario = tiny({"it": TAKING[name]}, **said)
    together = run(scenario)
    assert apart(together, run(scenario, execution=EAGER)) < 1e-12
    without = run(tiny({"it": TAKING[name]}, **{**said, "training__dropout": {"party": 0}}))
    assert same_times(together, without)
    assert apart(together, without) > 1e-6


def test_no_dropout_is_a_dropout_of_nobody() -> None:
    said = {"stop": {"rounds": 6}}
    assert apart(run(tiny(**said)), run(tiny(**said, training__dropout={"party": 0}))) < 1e-12


def test_a_run_says_how_often_parties_were_left_out() -> None:
    assert run(tiny(training__dropout=RATE, stop={"rounds": 2})).info.conditions.party_dropout == 0.4


@pytest.mark.parametrize("kind", sorted({said["kind"] for said in KINDS.values()} - ABLE))
def test_kinds_that_cannot_leave_parties_out_are_refused_with_those_that_can(kind: str) -> None:
    said = next(said for said in KINDS.values() if said["kind"] == kind)
    with pytest.raises(ScenarioError, match=r"cannot leave parties out of its steps") as refused:
        tiny({"it": said}, training__dropout=RATE)
    assert "synchronous" in str(refused.value)
    assert "training.dropout: {party: 0}" in str(refused.value)
    tiny({"it": {**said, "training": {**said.get("training", {}), "dropout": {"party": 0}}}}, training__dropout=RATE)


def test_masks_of_blinding_need_every_client() -> None:
    with pytest.raises(ScenarioError, match="cancel in the sum over all clients"):
        tiny({"it": {"kind": "synchronous", "blinding": {}}}, training__dropout=RATE)
