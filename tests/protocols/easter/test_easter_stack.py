"""Parties of EASTER in a stack, beside parties one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_worlds import EAGER, RANDOM_TIMING, apart, data_of, run, same_times, scores_apart, tiny
from torch import Tensor

from vflsim.errors import RunError
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.operations import Handle, run_together
from vflsim.protocols.easter.learning import EasterParty
from vflsim.protocols.easter.stack import TwoNetStack, stack_parties
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.setting import Learners
from vflsim.world.messages import Gradient

NEAR = 1e-12
MLP = {"kind": "mlp", "hidden": [7], "embedding": 5}
LINEAR = {"kind": "linear", "embedding": 5}
MOMENTUM = {"kind": "sgd", "lr": 0.05, "momentum": 0.8, "weight_decay": 0.01}
ADAM = {"kind": "adam", "lr": 0.01}
RAGGED = {"by": "explicit", "columns": [["24..29"], ["30..50"], ["0..2"], ["3..20"], ["21..23"], ["51..58"]]}
PREDICTORS: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear", "bias": False},
    "mlp": {"kind": "mlp", "hidden": [6, 4], "activation": "tanh"},
    "activation first": {"kind": "layers", "layers": ["relu", 6, "gelu"]},
    "activation last but one": {"kind": "layers", "layers": [6, "relu"]},
}


def easter(blinding: str = "off", **changes: Any) -> Scenario:
    """Six parties that draw all their times."""
    said: dict[str, Any] = {
        "timing": RANDOM_TIMING,
        "partition": {"clients": 5, "by": "columns", "active": True},
        "models__client": MLP,
        "models__active": MLP,
        "stop": {"rounds": 12},
        "evaluate": {"every": "5 rounds"},
    }
    return tiny({"it": {"kind": "easter", "blinding": blinding}}, **{**said, **changes})


def stacked(scenario: Scenario) -> tuple[Learners[Any, Any], list[str]]:
    resolved = setting(scenario, "it", data_of(scenario))
    made = scenario.protocols["it"].protocol.learners(resolved, 0)
    return made, made.stack(resolved, False)


def stacks_of(made: Learners[Any, Any]) -> list[list[int]]:
    stacks = dict.fromkeys(party.stack for party in made.clients.values() if party.stack is not None)
    return [[party.party for party in stack.parties] for stack in stacks]


def rule(said: dict[str, Any]) -> dict[str, Any]:
    return {"training__client_optimizer": said, "training__server_optimizer": said}


def assert_batched_equals_eager(scenario: Scenario) -> None:
    batched, eager = run(scenario), run(scenario, execution=EAGER)
    assert same_times(batched, eager)
    assert scores_apart(batched, eager) <= NEAR
    assert apart(batched, eager) <= NEAR


@pytest.mark.sampled(2)
@pytest.mark.parametrize("blinding", ["off", "on"])
@pytest.mark.parametrize("predictor", PREDICTORS)
@pytest.mark.parametrize("model", [LINEAR, MLP, {"kind": "polynomial", "degree": 2, "embedding": 5}], ids=str)
def test_parties_together_are_parties_one_by_one(model: dict[str, Any], predictor: str, blinding: str) -> None:
    said = {"models__client": model, "models__predictor": PREDICTORS[predictor]}
    rules = rule(ADAM if blinding == "on" else MOMENTUM)
    scenario = easter(blinding, partition={**RAGGED, "active": True}, **said, **rules)
    assert stacks_of(stacked(scenario)[0]) == [[1, 2, 3, 4, 5]]
    assert_batched_equals_eager(scenario)


def test_only_alike_parties_are_together_and_the_others_have_reasons() -> None:
    clients = [
        {"select": "all", **MLP},
        {"select": "3", **LINEAR},
        {"select": "7", "kind": "cnn", "channels": [2], "embedding": 5},
    ]
    predictors = [
        {"select": "all", "kind": "mlp", "hidden": [4]},
        {"select": "2,4", "kind": "linear"},
        {"select": "6", "kind": "mlp", "hidden": [4], "batch_norm": True},
    ]
    scenario = easter(
        partition={"clients": 7, "by": "image_rows", "active": True},
        models__client=clients,
        models__predictor=predictors,
        training__last_batch="drop",
    )
    made, alone = stacked(scenario)
    assert stacks_of(made) == [[1, 5], [2, 4], [3]]
    assert alone == [
        "1 mlp and mlp parties one by one: no stack computes the layers of their prediction net",
        "1 cnn and mlp parties one by one: convolutions are slower together than one by one",
    ]
    assert_batched_equals_eager(scenario)


def test_a_party_of_ones_own_is_not_computed_as_vflsims_are() -> None:
    class Own(EasterParty):
        """Might do anything."""

    scenario = easter()
    resolved = setting(scenario, "it", data_of(scenario))
    made = scenario.protocols["it"].protocol.learners(resolved, 0)
    own = {client: Own(resolved, client, 0) if client == 2 else party for client, party in made.clients.items()}
    alone = Learners(made.server, own, stack_parties).stack(resolved, False)
    assert own[2].stack is None
    assert [party.party for party in own[1].stack.parties] == [1, 3, 4, 5]
    assert alone == ["1 mlp and mlp parties one by one: their learners are not vflsim's own"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("interrupted", ["lost", "resumed"])
def test_parties_that_go_down_and_come_back_step_by_themselves(interrupted: str) -> None:
    down = {"kind": "alternating", "interrupted": interrupted}
    down |= {"up": {"kind": "exponential", "mean": "40 ms"}, "down": {"kind": "exponential", "mean": "9 ms"}}
    timing = {**RANDOM_TIMING, "clients": [*RANDOM_TIMING["clients"], {"select": "2..N", "availability": down}]}
    assert_batched_equals_eager(easter("on", timing=timing, **rule(MOMENTUM)))


def test_losses_of_all_predictions_as_one_are_those_one_by_one() -> None:
    """A loss of a user's own, too, is a mean over the rows: reading the scenario tries that out."""
    own = easter(data__task="multiclass", training__loss={"kind": "module", "path": "own_losses:Margin"})
    assert stacked(own)[0].server.losses_together
    assert_batched_equals_eager(own)


# --- by itself ------------------------------------------------------------------------------------------------------


def made() -> tuple[list[EasterParty], TwoNetStack, BatchSequence]:
    scenario = easter(**rule(MOMENTUM))
    parties = [*stacked(scenario)[0].clients.values()]
    data = data_of(scenario)
    return parties, parties[0].stack, BatchSequence(data.rows, scenario.training_of("it"), 0, 1)


def received(*values: Tensor) -> list[Any]:
    messages = []
    for value in values:
        handle: Handle[Tensor] = Handle(tuple(value.shape), value.dtype)
        handle.set(value)
        messages.append(Gradient(value=handle))
    return messages


def predicted(parties: list[EasterParty], batch: Batch, seed: int) -> Tensor:
    """What all parties predict from a drawn global embedding."""
    (mean,) = received(torch.randn(len(batch), 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    mean.batch = batch
    embeds, predicts = [party.embed(batch) for party in parties], [party.predict(mean) for party in parties]
    run_together(embeds)
    run_together(predicts)
    return torch.stack([operation.result.value for operation in predicts])


def stepped(parties: list[EasterParty], batch: Batch, seed: int) -> None:
    gradient = torch.randn(len(batch), 10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    run_together(
        [
            party.client_step(batch, message)
            for party, message in zip(parties, received(*[gradient] * len(parties)), strict=True)
        ]
    )


def test_a_stack_that_is_restored_between_the_trips_steps_to_the_bit() -> None:
    """Its forward pass is gone, and done again from the global embedding that it has kept."""
    (one, stack, batches), (other, twin, _) = made(), made()
    predicted(one, batches.batch(0), 0)
    stepped(one, batches.batch(0), 1)
    predicted(one, batches.batch(1), 2)
    twin.load({name: tensor.clone() for name, tensor in stack.state().items()})
    for parties in (one, other):
        stepped(parties, batches.batch(1), 3)
    assert all(torch.equal(ours, twin.state()[name]) for name, ours in stack.state().items())
    assert torch.equal(predicted(one, batches.batch(2), 4), predicted(other, batches.batch(2), 4))


def test_some_parties_of_a_stack_step_before_the_others() -> None:
    (together, stack, batches), (apart_, twin, _) = made(), made()
    batch = batches.batch(0)
    for parties in (together, apart_):
        predicted(parties, batch, 0)
    stepped(together, batch, 1)
    stepped(apart_[1:3], batch, 1)
    stepped([apart_[0], *apart_[3:]], batch, 1)
    for name, tensor in stack.state().items():
        assert torch.allclose(tensor.double(), twin.state()[name].double(), rtol=0, atol=1e-14), name


@pytest.mark.parametrize("late", [False, True], ids=["of another batch", "a second time"])
def test_a_gradient_without_a_prediction_is_refused_as_it_is_one_by_one(late: bool) -> None:
    parties, _, batches = made()
    predicted(parties, batches.batch(0), 0)
    if late:
        stepped(parties, batches.batch(0), 1)
    with pytest.raises(RunError, match="of which no forward pass is kept"):
        stepped(parties, batches.batch(0 if late else 1), 1)
