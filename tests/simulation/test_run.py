"""One run: what it leaves behind, and what it says when it fails, in both worlds."""

from __future__ import annotations

import asyncio
import gc
from typing import Literal

import pytest
import torch
from tiny_worlds import (
    EAGER,
    RANDOM_TIMING,
    WORLDS,
    apart,
    data_of,
    events,
    metrics,
    rounds,
    run,
    same_times,
    same_weights,
    scores_apart,
    tiny,
    world,
)

from vflsim.errors import DeadlockError, ForeignAwaitError, NonFiniteError, NoProgressError, RunError, VflsimError
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import ImmediateExecutor, TimingOnlyExecutor
from vflsim.protocols import Protocol
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.studies.checks.estimates import expectation
from vflsim.world.messages import Query
from vflsim.world.node import Node
from vflsim.world.virtual import VirtualWorld

both = pytest.mark.parametrize("kind", WORLDS)


class Broken(Protocol):
    """Goes wrong in the way a test asks for."""

    kind: Literal["broken"] = "broken"
    how: str

    async def server(self, node: Node) -> None:
        while True:
            await node.recv("embedding")

    async def client(self, node: Node) -> None:
        await node.sleep(0.001)
        if node.party == 3:
            if self.how == "bug":
                raise ZeroDivisionError("by hand")
            if self.how == "foreign":
                await asyncio.sleep(0)
            if self.how == "negative":
                await node.sleep(-1)
            if self.how == "nobody":
                await node.send(99, Query())
        while self.how == "spin":
            await node.compute(node.free().learner.embed(node.batch(0)))


def failing(how: str, kind: str, **changes: object) -> Outcome:
    scenario = tiny("synchronous", **changes).with_protocols({"broken": Broken(how=how)})
    return run_protocol(scenario, "broken", 0, data_of(scenario), world=world(kind))


@both
@pytest.mark.parametrize(
    ("how", "error", "what"),
    [
        ("bug", RunError, r"client-3 at [\d.e-]+ s: ZeroDivisionError: by hand"),
        ("negative", RunError, r"client-3 at .*sleep -1 s"),
        ("nobody", RunError, r"client-3 at .*99"),
        ("nothing", DeadlockError, r"deadlock: .*server waits for .*'embedding'"),
    ],
)
def test_what_goes_wrong_is_told_with_party_and_time_and_ends_the_run(
    how: str, error: type, what: str, kind: str
) -> None:
    outcome = failing(how, kind)
    assert (outcome.info.status, outcome.info.stop_reason) == ("failed", None)
    assert isinstance(outcome.error, error)
    assert isinstance(outcome.error, VflsimError)
    with pytest.raises(error, match=what):
        raise outcome.error
    assert metrics(outcome)["round"].tolist() == [0]
    assert outcome.info.error == str(outcome.error)
    if how == "bug":
        assert isinstance(outcome.error.__cause__, ZeroDivisionError)


def test_awaiting_something_foreign_is_told_in_virtual_time() -> None:
    outcome = failing("foreign", "virtual")
    assert isinstance(outcome.error, ForeignAwaitError)
    assert "client-3" in str(outcome.error)


def test_a_loop_in_which_no_time_passes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflsim.world.virtual.STANDSTILL", 10_000)
    outcome = failing("spin", "virtual", timing={})
    assert isinstance(outcome.error, NoProgressError)


@both
def test_a_loss_that_is_not_finite_ends_the_run_with_party_round_and_time(kind: str) -> None:
    scenario = tiny("synchronous", training__client_optimizer={"kind": "sgd", "lr": 1e200})
    outcome = run_protocol(scenario, "synchronous", 0, data_of(scenario), world=world(kind))
    assert isinstance(outcome.error, NonFiniteError)
    assert outcome.error.where.startswith("server, server_step, round ")
    assert outcome.error.remedy
    assert outcome.info.status == "diverged"
    assert len(metrics(outcome)) >= 1
    assert len(rounds(outcome)) >= 1
    assert torch.get_num_threads() == 1


LATE = {"it": {"kind": "t_synchronous", "t": 2, "max_staleness": 1}}


def test_work_done_at_once_or_late_gives_the_same_bits() -> None:
    scenario = tiny(LATE, stop={"rounds": 40})
    late, now, small = (
        run(scenario, world=VirtualWorld(executor), execution=EAGER)
        for executor in (DeferredExecutor(), ImmediateExecutor(), DeferredExecutor(limit_bytes=3000))
    )
    assert late.tables == now.tables == small.tables
    assert same_weights(late, now)
    assert same_weights(late, small)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("limit", [1, 3000, 30_000])
def test_how_much_may_wait_changes_nothing_but_rounding(limit: int) -> None:
    scenario = tiny(LATE, stop={"rounds": 40})
    much, little = run(scenario), run(scenario, world=VirtualWorld(DeferredExecutor(limit)))
    assert same_times(much, little)
    assert scores_apart(much, little) <= 1e-12
    assert apart(much, little) <= 1e-12


def test_a_batched_run_repeats_to_the_bit() -> None:
    one, again = (run(tiny(LATE, stop={"rounds": 40})) for _ in range(2))
    assert one.tables == again.tables
    assert same_weights(one, again)


def test_what_is_batched_and_what_is_not_is_said() -> None:
    assert run(tiny()).info.learning_plane == "batched"
    assert run(tiny(), execution=EAGER).info.learning_plane == "eager"
    assert run(tiny(), timing_only=True).info.learning_plane is None


def test_weights_are_those_of_all_participants_by_name() -> None:
    outcome = run(tiny({"it": {"kind": "ignore", "exclude": "2"}}))
    assert {name.partition(".")[0] for name in outcome.weights} == {"server", "client-1", "client-3", "client-4"}
    assert outcome.weights["client-1.1.weight"].shape == (6, 16)
    assert all(tensor.dtype is torch.float64 for tensor in outcome.weights.values())


def test_a_timing_only_run_trains_nothing_and_says_so_in_its_columns() -> None:
    outcome = run(tiny(stop={"rounds": 12}), timing_only=True)
    assert outcome.weights == {}
    assert "test_loss" not in metrics(outcome)
    assert metrics(outcome)["train_loss"].isna().all()
    assert metrics(outcome)["round"].tolist() == [0, 4, 8, 12]


def test_the_page_of_facts_says_what_was_run() -> None:
    info = run(tiny({"it": {"kind": "asynchronous", "max_staleness": 3}}, stop={"rounds": 12}), seed=7).info
    assert (info.scenario, info.protocol, info.seed, info.threads) == ("tiny", "it", 7, 1)
    assert (info.max_staleness, info.staleness_bounds) == (3, "client_age")
    assert (info.waits_for_all, info.rounds_correspond, info.awaited_replies) == (False, False, ("answer",))
    assert info.counts["rounds"] == 12
    assert {"vflsim", "torch", "numpy", "simpy", "python"} <= set(info.versions)


@pytest.mark.parametrize("protocol", ["synchronous", "asynchronous", "centralised"])
def test_what_is_expected_of_a_run_is_what_the_run_does(protocol: str) -> None:
    scenario = tiny(protocol, stop={"rounds": 20})
    found = expectation(scenario, protocol, data_of(scenario), steps=20)
    outcome = run(scenario)
    assert found.step_s == metrics(outcome)["time_s"].iloc[-1] / 20
    assert found.clients == 4
    assert found.rounds == 20
    last = metrics(outcome).iloc[-1]
    assert found.round_bytes == (last["bytes_up"] + last["bytes_down"]) / 20
    assert found.size.parameters == sum(tensor.numel() for tensor in outcome.weights.values())


def test_a_rate_of_flops_decides_how_long_work_takes() -> None:
    # 16 features to 6: 2 · 20 · 16 · 6 = 3840 operations for a batch of 20, forward; the same for the weights' gradient
    timing = {"clients": {"select": "all", "compute": {"kind": "flops", "rate": "1 kFLOPS"}}}
    outcome = run(tiny(timing=timing, stop={"rounds": 3}))
    spans = events(outcome).query("kind in ('compute.embed', 'compute.client_step') and party == 'client-1'")
    seconds = (spans["end_s"] - spans["start_s"]).tolist()
    assert seconds == pytest.approx([3.84] * len(seconds))
    assert rounds(outcome)["end_s"].tolist() == pytest.approx([3.84, 3 * 3.84, 5 * 3.84])


@pytest.mark.parametrize("batches", ["shared", "own"])
def test_what_is_remembered_between_runs_is_nothing_of_a_seed(batches: str) -> None:
    scenario = tiny("asynchronous", timing=RANDOM_TIMING, training__batches=batches)
    first, other, again = (run(scenario, seed=seed) for seed in (0, 1, 0))
    assert first.tables == again.tables
    assert same_weights(first, again)
    assert first.tables != other.tables
    assert not same_weights(first, other)


def test_the_collector_and_the_threads_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = tiny()
    before = gc.get_threshold(), torch.get_num_threads(), gc.isenabled()
    seen = []
    advance = VirtualWorld._advance

    def spy(world: VirtualWorld) -> None:
        seen.append(gc.get_threshold())
        advance(world)

    monkeypatch.setattr(VirtualWorld, "_advance", spy)
    run(scenario, timing_only=True)
    assert seen[0] > before[0]
    assert (gc.get_threshold(), torch.get_num_threads(), gc.isenabled()) == before

    def fail(world: VirtualWorld) -> None:
        raise VflsimError("broken")

    monkeypatch.setattr(VirtualWorld, "_advance", fail)
    outcome = run_protocol(scenario, "synchronous", 0, data_of(scenario), world=VirtualWorld(TimingOnlyExecutor()))
    assert outcome.error is not None
    assert (gc.get_threshold(), torch.get_num_threads(), gc.isenabled()) == before


@pytest.mark.slow
def test_what_a_timing_run_throws_away_needs_no_collector() -> None:
    """No cycles: the collector may be slow to look, for it would find next to nothing."""
    scenario = tiny(stop={"rounds": 200}, timing=RANDOM_TIMING)
    data = data_of(scenario)
    world = VirtualWorld(TimingOnlyExecutor())
    found = []
    finish = world.finish

    def look(reason: str) -> None:
        found.append(gc.collect())
        finish(reason)

    world.finish = look  # type: ignore[method-assign]
    gc.collect()
    gc.disable()
    try:
        run_protocol(scenario, "synchronous", 0, data, world=world, timing_only=True)
    finally:
        gc.enable()
    assert found[0] < 200  # of some 50,000 objects
