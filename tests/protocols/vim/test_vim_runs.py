"""Whole runs of the protocols with linear heads: crashes, interruptions, closed forms, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from both_paths import assert_same_bytes, quick
from closed_form_checks import seen
from kept_runs import CountedWorld, KeptAt, assert_two_interruptions_change_no_byte, files_of, interrupted
from plain_heads import heads
from protocols_by_kind import HEADS, KINDS
from thorough import in_turn
from tiny_worlds import RANDOM_TIMING, data_of, events, metrics, parties, raw, rounds, run, world
from torch import Tensor

from vflsim.errors import ScenarioError
from vflsim.learning.batching.stack import Stack
from vflsim.learning.execution.deferred import DeferredExecutor
from vflsim.learning.execution.operations import Handle
from vflsim.protocols import PROTOCOLS
from vflsim.protocols.vim.heads import LinearHeads
from vflsim.scenario import load
from vflsim.world.record import Recorder

OURS = {each.model_fields["kind"].default for each in PROTOCOLS if issubclass(each, LinearHeads)}
VIM = {name: {k: v for k, v in said.items() if k != "models"} for name, said in KINDS.items() if said["kind"] in OURS}
every = pytest.mark.parametrize("name", VIM)


@every
def test_a_run_that_is_interrupted_twice_writes_the_same_bytes(name: str, tmp_path: Path) -> None:
    scenario = load(heads(VIM[name], timing=RANDOM_TIMING, stop={"rounds": 7}, evaluate={"every": "3 rounds"}))
    assert_two_interruptions_change_no_byte(scenario, tmp_path)


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


@in_turn(name=[*VIM], interrupt=["lost", "resumed"])
def test_a_client_that_goes_down_delays_its_rounds_and_training_goes_on(name: str, interrupt: str) -> None:
    """It is away for 10 ms out of 40: during embeddings, uploads and local steps."""
    intervals = {"kind": "intervals", "down": [["3 ms", "13 ms"]], "period": "40 ms", "interrupted": interrupt}
    clients = [*RANDOM_TIMING["clients"], {"select": "2", "availability": intervals}]
    said = heads(VIM[name], stop={"rounds": 40}, evaluate={"every": "20 rounds"})
    plain = run(load({**said, "timing": RANDOM_TIMING}))
    outcome = run(load({**said, "timing": {**RANDOM_TIMING, "clients": clients}}))  # which verifies the run
    assert len(rounds(outcome)) == 40
    assert rounds(outcome)["end_s"].iloc[-1] > rounds(plain)["end_s"].iloc[-1]
    losses = metrics(outcome)["train_loss"]
    assert losses.iloc[2] < losses.iloc[1]
    mine = events(outcome, party="client-2")
    assert bool((mine["outcome"] == "lost").any()) is (interrupt == "lost")


@every
def test_timing_alone_gives_the_same_rounds(name: str) -> None:
    scenario = load(heads(VIM[name], timing=RANDOM_TIMING, stop={"rounds": 8}))
    assert rounds(run(scenario)).equals(rounds(run(scenario, timing_only=True)))


@pytest.mark.sampled(4)
@in_turn(
    name=[*VIM],
    compute={
        "time": "40 ms",
        "random": {"kind": "exponential", "mean": "40 ms"},
        "flops": {"kind": "flops", "rate": "1e5 FLOPS"},
    },
)
def test_the_law_of_a_round_agrees_with_its_simulation(name: str, compute: Any) -> None:
    link = {"up": "100 kbps", "down": "100 kbps"}
    timing = {
        "network": "dedicated",
        "server": {"compute": "1 ms"},
        "clients": [
            {"select": "all", "compute": compute, "link": link, "upload_delay": {"kind": "exponential", "mean": "m ms"}}
        ],
    }
    said = heads(VIM[name], timing=timing, training__last_batch="drop", record="rounds")
    checked = seen(said, 100, steps=400)
    assert checked.wrong == []
    assert checked.forms["none"] == checked.forms["bounds"] == 0
    assert checked.checks["drawn"] > 0
    assert checked.checks["simulated"] > 0


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


@pytest.mark.parametrize("exclude", [{}, {"exclude": "2, N"}])
@pytest.mark.parametrize("kind", ["vimsgd", "fdml"])
def test_protocols_by_gradients_have_synchronous_rounds_on_both_paths(kind: str, exclude: dict[str, str]) -> None:
    assert_same_bytes(quick({"kind": kind, **exclude, "models": HEADS}, timing=RANDOM_TIMING, stop={"rounds": 12}))
