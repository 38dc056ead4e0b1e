"""Runs that are interrupted at chosen events and go on: what is compared is every byte that they write."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tiny_worlds import run

from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.results.store.write import write_run
from vflsim.scenario.models import Scenario
from vflsim.simulation.checkpoints import Keeper
from vflsim.simulation.run import Outcome
from vflsim.world.virtual import VirtualWorld

FINGERPRINT = {"protocol": "tiny", "seed": "0", "torch": "2"}


class KeptAt(Keeper):
    """Keeps a checkpoint when so many events have happened, instead of by the clock; the last ends the run."""

    def __init__(
        self, folder: Path, events: Iterable[int] = (), resume: bool = True, stop: bool = False, **otherwise: str
    ) -> None:
        super().__init__(folder, None, {**FINGERPRINT, **otherwise}, resume)
        self._left, self._stops = sorted(events), stop

    def _plan(self) -> None:
        assert self._course is not None
        self._left = [count for count in self._left if count > self._kept_at]
        if self._left:
            self._course.world.visit(self._there, self._left[0])

    def _there(self) -> None:
        self._left.pop(0)
        self._stop = self._stops and not self._left
        self._visit()


class CountedWorld(VirtualWorld):
    """Notes how many events there were when the run ended."""

    last = 0

    def finish(self, reason: str) -> None:
        super().finish(reason)
        self.last = self.last or self.events


def whole(scenario: Scenario, **more: Any) -> tuple[Outcome, int]:
    """A run without interruptions, and how many events there are before it ends."""
    world = CountedWorld(DeferredExecutor())
    return run(scenario, world=world, **more), world.last - 1


def interrupted(scenario: Scenario, folder: Path, events: Iterable[int], **more: Any) -> None:
    """A run that is interrupted after the last of ``events``, and may itself go on from an earlier one."""
    try:
        run(scenario, keeper=KeptAt(folder, events, stop=True), **more)
    except KeyboardInterrupt:
        return
    raise AssertionError("the run ended before")


def files_of(outcome: Outcome, folder: Path, scenario: Scenario) -> dict[str, bytes]:
    """Every file of a run, as written; run.json without its wall-clock time."""
    tables = scenario.record.tables
    write_run(folder, outcome.tables, outcome.weights, outcome.info, tables, outcome.extra, outcome.views)
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    info = json.loads(files["run.json"])
    del info["wall_clock_s"], info["together"]
    return {**files, "run.json": json.dumps(info).encode()}


def assert_interruptions_change_no_byte(
    scenario: Scenario, folder: Path, at: Iterable[float] = (0.3, 0.6), **more: Any
) -> Outcome:
    """A run that is interrupted after these shares of its events writes what the whole run does, which is returned."""
    outcome, last = whole(scenario, **more)
    for share in at:
        interrupted(scenario, folder / "kept", [int(share * last)], **more)
    resumed = run(scenario, keeper=KeptAt(folder / "kept"), **more)
    assert "resumed from" in resumed.note
    assert files_of(resumed, folder / "resumed", scenario) == files_of(outcome, folder / "whole", scenario)
    return outcome
