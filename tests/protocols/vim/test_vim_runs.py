"""Runs of the protocols with linear heads: stacks, interruptions between local steps, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kept_runs import CountedWorld, KeptAt, files_of, interrupted
from plain_heads import heads
from protocols_by_kind import HEADS, KINDS
from tiny_worlds import RANDOM_TIMING, data_of, events, parties, raw, run, world
from torch import Tensor

from vflsim.errors import ScenarioError
from vflsim.learning.batching.stack import Stack
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Handle
from vflsim.protocols import PROTOCOLS
from vflsim.protocols.vim.protocol import LinearHeads
from vflsim.scenario import load
from vflsim.world.record import Recorder

OURS = {each.model_fields["kind"].default for each in PROTOCOLS if issubclass(each, LinearHeads)}
VIM = {name: {k: v for k, v in said.items() if k != "models"} for name, said in KINDS.items() if said["kind"] in OURS}
every = pytest.mark.parametrize("name", VIM)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [name for name, said in VIM.items() if "local_steps" in said])
def test_an_interruption_between_local_steps_leaves_no_trace(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queues are cut short, so that clients in one stack have taken some of their steps."""
    scenario = load(heads({**VIM[name], "local_steps": 5}, timing=RANDOM_TIMING, stop={"rounds": 3}))
    load_stack, taken = Stack.load, set[int]()

    def watched(self: Stack, state: Mapping[str, Tensor]) -> None:
        taken.update(count % 5 for count in state["optimizer.steps"].tolist())
        load_stack(self, state)

    def short() -> CountedWorld:
        return CountedWorld(DeferredExecutor(limit_bytes=30_000))

    monkeypatch.setattr(Stack, "load", watched)
    counted = short()
    expected = files_of(run(scenario, world=counted), tmp_path / "whole", scenario)
    for at in range(counted.last // 3, counted.last, counted.last // 6):
        interrupted(scenario, tmp_path / f"kept-{at}", [at], world=short())
        resumed = run(scenario, keeper=KeptAt(tmp_path / f"kept-{at}"), world=short())
        assert files_of(resumed, tmp_path / f"resumed-{at}", scenario) == expected
    assert taken - {0}


@pytest.mark.sampled(3)
@every
def test_all_clients_are_computed_together(name: str) -> None:
    scenario = load(heads(VIM[name]))
    made = parties(scenario, "it", 0, data_of(scenario, "it"), world("virtual"), Recorder("rounds"), batched=True)
    learners = [node.learner for node in made.clients]
    assert made.alone == ()
    assert {learner.stack for learner in learners} == {learners[0].stack}
    assert learners[0].stack is not None
    batch, shape = made.clients[0].batch(0), (20, 5 if name == "vimsgd" else 10)
    values = [Handle(shape, torch.float64) for _ in range(3)]
    message: Any = SimpleNamespace(value=values[0])
    if "local_steps" in VIM[name]:
        message = dict(zip(("duals", "residuals", "head"), values, strict=True))
    assert len({learner.embed(batch).kernel for learner in learners}) == 1
    assert len({learner.client_step(batch, message).kernel for learner in learners}) == 1


@pytest.mark.sampled(7)
@every
@pytest.mark.parametrize(
    ("models", "what"),
    [
        ({"aggregate": "mean"}, "the aggregate is mean\n  allowed: models.aggregate: concat"),
        (
            {"server": {"kind": "linear"}},
            r"linear with a bias\n  allowed: models.server: \{kind: linear, bias: false\}",
        ),
        ({"server": {"kind": "mlp", "hidden": [4]}}, r"the server's model is mlp\n  allowed: models.server: \{kind"),
    ],
)
def test_models_without_linear_heads_are_refused(name: str, models: dict[str, Any], what: str) -> None:
    with pytest.raises(ScenarioError, match=what):
        load(raw({"it": {**VIM[name], "models": {**HEADS, **models}}}))


@every
def test_nobody_left_is_refused(name: str) -> None:
    with pytest.raises(ScenarioError, match="exclude leaves none of the 4 clients"):
        load(raw({"it": {**VIM[name], "exclude": "all", "models": HEADS}}))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name, said in VIM.items() if "exclude" not in said])
def test_clients_that_are_left_out_change_nothing_about_the_others(name: str) -> None:
    """The same delays, batches and initial weights."""
    said = heads(VIM[name], timing=RANDOM_TIMING, stop={"rounds": 1}, evaluate={"every": "1 rounds"})
    scenario = load(said)
    fewer = scenario.with_protocols({"it": scenario.protocols["it"].protocol.without((2,))})
    both = [run(each) for each in (scenario, fewer)]
    assert set(both[1].info.participants) == {1, 3}
    drawn = [events(outcome, "upload", "client-1")["drawn_s"].iloc[0] for outcome in both]
    assert drawn[0] == drawn[1]
