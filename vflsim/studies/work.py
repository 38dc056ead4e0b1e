"""The common part of all runs of a study; execution of one run, up to its written folder."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vflsim.checkpoints import Keeper
from vflsim.results.write import run_folder, write_run
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.load import dump
from vflsim.scenario.models import Scenario
from vflsim.simulation.conductor import Progress
from vflsim.simulation.info import versions
from vflsim.studies.interrupt import Interrupt
from vflsim.studies.options import RunOptions
from vflsim.studies.paths import Choice, run_on
from vflsim.studies.watching import Report, StudyRun


@dataclass(frozen=True, slots=True)
class Work:
    """A study for the process that executes its runs: this one, or a worker, which gets nothing else.

    ``only``: the runs that belong to it, by protocol and seed; None: all.
    """

    scenario: Scenario
    folder: Path
    paths: Mapping[str, Choice]
    timing_only: bool
    options: RunOptions
    only: frozenset[tuple[str, int]] | None = None

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Its runs in their order: all protocols with one seed before the next seed."""
        runs = [(name, seed) for seed in self.scenario.seeds for name in self.scenario.protocols]
        return [run for run in runs if self.only is None or run in self.only]

    @property
    def text(self) -> str:
        """The scenario text that is stored with the results."""
        return stored_text(self.scenario, self.timing_only)

    def carry_out(
        self, run: StudyRun, data: ScenarioData, report: Callable[[Progress], None], interrupt: Interrupt
    ) -> Report:
        """Execute one run; write it whole or not at all.

        Raises ResultsError if it cannot be written or cannot resume from its checkpoint, and, if interrupted,
        KeyboardInterrupt after a checkpoint.
        """
        keeper = self._keeper(run)
        stopping = nullcontext() if keeper is None else interrupt.softened(partial(keeper.request, stop=True))
        with stopping:  # until all is written: an ended run must not look unfinished
            outcome = run_on(
                self.paths[run.protocol],
                self.scenario,
                run.protocol,
                run.seed,
                data.of(self.scenario.training_of(run.protocol)),
                timing_only=self.timing_only,
                report=report,
                execution=self.options.execution,
                keeper=keeper,
            )
            place = run_folder(self.folder, run.protocol, run.seed)
            tables = self.scenario.record.tables
            write_run(place, outcome.tables, outcome.weights, outcome.info, tables, outcome.extra, outcome.views)
            self.clear(run.protocol, run.seed)
            if outcome.error is None:
                self.log_of(run).unlink(missing_ok=True)
        return Report.of(outcome)

    def clear(self, protocol: str, seed: int) -> None:
        """Remove the checkpoints of a written run, including those of earlier attempts."""
        shutil.rmtree(self._beside(protocol, seed, "checkpoint"), ignore_errors=True)

    def device_of(self, protocol: str) -> str:
        """Return the device of a protocol's tensors; coded runs stay on the CPU."""
        return "cpu" if self.scenario.protocols[protocol].protocol.runs_on_cpu else self.options.execution.device

    def log_of(self, run: StudyRun) -> Path:
        """Return the log file of a worker's run; it exists only while the run lasts, and after a failure."""
        return self._beside(run.protocol, run.seed, "log")

    def _keeper(self, run: StudyRun) -> Keeper | None:
        """Make the keeper of a run's checkpoints; None for timing-only runs, since replaying one saves no time."""
        options = self.options
        if self.timing_only or (options.checkpoint_every is None and not options.resume):
            return None
        execution = options.execution
        fingerprint = {
            "scenario": hashlib.sha256(self.text.encode()).hexdigest(),
            "protocol": run.protocol,
            "seed": str(run.seed),
            **versions(),
            "device": self.device_of(run.protocol),
            "threads": str(execution.threads),
            "tf32": str(execution.tf32),
            "learning plane": execution.learning_plane,
        }
        folder = self._beside(run.protocol, run.seed, "checkpoint")
        return Keeper(folder, options.checkpoint_every, fingerprint, options.resume)

    def _beside(self, protocol: str, seed: int, what: str) -> Path:
        """Return a hidden path beside the folder of a run."""
        return run_folder(self.folder, protocol, seed).with_name(f".seed-{seed}.{what}")


def stored_text(scenario: Scenario, timing_only: bool) -> str:
    """Return the scenario text stored with its results.

    Timing-only and training results get different texts, so that neither replaces the other.
    """
    return dump(scenario) + ("# run with --timing-only\n" if timing_only else "")
