"""A run depends on its scenario and seed alone, not on the runs before it, and leaves the process as it was."""

from __future__ import annotations

import gc

import pytest
import torch
from tiny_worlds import RANDOM_TIMING, data_of, run, same_weights, tiny

from vflsim.errors import VflsimError
from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.simulation.run import run_protocol
from vflsim.world.virtual import VirtualWorld


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
