"""Control of a run: when it is evaluated, and the hooks of what ends it and of what reports its progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.learners.client import Split
from vflsim.protocols.hook_checks import checked_score, checked_scores, coroutine_of
from vflsim.scenario.sections import Evaluate
from vflsim.simulation.build import Parties
from vflsim.simulation.reporter import Progress, Reporter
from vflsim.simulation.standstill import EndlessRule
from vflsim.stopping.end_rule import EndRule, Tally
from vflsim.streams import SERVER
from vflsim.vocabulary.metrics import NO_METRICS, Known
from vflsim.world.kernel import Moment, World
from vflsim.world.record import Recorder
from vflsim.world.task import Signal, evaluation_task
from vflsim.world.virtual import VirtualWorld

_WHOLE = 2.0**53
"""From here on every float is a whole number, so any time is a multiple of a smaller step."""


class Conductor:
    """Evaluates one run, and ends it by its ``rules``.

    Invariants: a row of metrics describes the end of its instant; no two rows describe the same state, except the last
    row, which always stands at the run's end; evaluation moves the clock only if it ``costs_time``. ``wired``: the
    messages of evaluations outside time pass the codec. ``metrics``: what the scenario declares, beside the metrics of
    every run.
    """

    def __init__(
        self,
        parties: Parties,
        rules: Sequence[EndRule],
        every: Evaluate,
        splits: tuple[Split, ...],
        report: Callable[[Progress], None] | None = None,
        wired: bool = True,
        metrics: Known = NO_METRICS,
    ) -> None:
        self._parties, self._rules, self._every, self._splits = parties, rules, every, splits
        self._world, self._recorder = parties.server.world, parties.shared.recorder
        self._reporter = None if report is None else Reporter(report, rules, self._done)
        self._wired = wired
        self._metrics, self._scores = metrics, dict[Split, tuple[str, ...]]()
        self._evaluator = type(parties.server.learner).__name__
        self._rounds = 0
        self._after_round = [(rule.key, rule.after_step) for rule in rules if rule.by in ("round", "step")]
        self._after_update = [(rule.key, rule.after_step) for rule in rules if rule.by in ("update", "step")]
        self._in_seconds = every.every.unit == "seconds"
        self._releases = parties.releases
        self._trigger: Signal | None = None
        self._asked = self._ticking = False
        self._evaluated: tuple[int, int, float] | None = None
        self._number = 0
        self.began = time.monotonic()
        """Wall-clock start of the run; a resumed run subtracts the time that it had taken before."""
        self._last_count = 0

    @property
    def ended_because(self) -> str:
        """Why a rule has ended the run, in words, where its limit does not say it."""
        return next((rule.because for rule in self._rules if rule.because), "")

    def start(self, begin: Callable[[], None]) -> None:
        """Evaluate the initial models, then start the parties by ``begin``, and the timer that ends the run."""
        self._parties.shared.progressed = self._on_progress
        endless = EndlessRule(self._parties, self._rules, self._every.every.unit, self._releases)
        if endless.needed:
            self._parties.shared.computed = endless.add
        self._world.spawn(self._observe(partial(self._begin, begin)), "observer", 0, observer=True)

    def _begin(self, begin: Callable[[], None]) -> None:
        for rule in self._rules:
            rule.begin(self._parties.shared, self._elapsed)
            for releases in self._releases:
                rule.guard(releases, partial(self._world.finish, rule.key))
        begin()

    def _elapsed(self) -> float:
        return time.monotonic() - self.began

    async def last_row(self) -> None:
        """Add the row at the run's end, unless the latest row already stands there."""
        self._parties.shared.close()
        if self._evaluated == (self._recorder.rounds, self._recorder.updates, self._world.now()):
            self._recorder.recount()
            self._recorder.metric_rows[-1] |= self._spent()
            return
        await self._write_row(free=True)

    def _spawn_answering(self, free: bool) -> None:
        for client in self._parties.clients:
            node = client.free(wired=self._wired) if free else client
            self._world.spawn(
                coroutine_of(
                    self._parties.protocol,
                    "answer_evaluation",
                    node.party,
                    node,
                    self._splits,
                    self._number,
                ),
                evaluation_task(node.party),
                node.party,
                observer=free,
            )

    def _tick(self) -> None:
        """Evaluate at the next multiple of ``every``; set only after a change, so a tiny ``every`` costs nothing."""
        self._ticking = True
        now, every = self._world.now(), self._every.every.amount
        turns = now / every
        at = math.ceil(turns) * every if turns < _WHOLE else now

        def fire() -> None:
            self._ticking = False
            self._ask()

        self._world.after(max(0.0, at - now), fire, Moment.OBSERVE, observer=True)

    def _ask(self) -> None:
        self._asked = not self._world.over  # after the end, ``last_row`` evaluates
        if self._asked and self._trigger is not None:
            self._trigger.set()

    async def _observe(self, begin: Callable[[], None]) -> None:
        await self._write_row(free=True, at=0.0)  # the initial models, at 0 even in real time
        if not self._world.over:
            begin()
        while True:
            if not self._asked:
                self._trigger = self._world.signal()
                await self._trigger
            self._asked = False
            recorder = self._recorder
            if self._evaluated is None or self._evaluated[:2] != (recorder.rounds, recorder.updates):
                await self._write_row(free=not self._every.costs_time)

    async def _write_row(self, free: bool, at: float | None = None) -> None:
        """Evaluate, and add a row of metrics at the end of the evaluation, or ``at`` a given time."""
        recorder, executor = self._recorder, self._world.executor
        state = recorder.rounds, recorder.updates
        self._number += 1
        if self._reporter is not None and executor.values:
            self._reporter.evaluating()
        values = await self.evaluated(free) if executor.values or not free else {}
        if executor.values:
            for loss in recorder.losses_pending():
                executor.force(loss)
            values |= self._spent()
        else:
            executor.observe()
        now = self._world.now() if at is None else at
        row = recorder.metrics(now, values)
        self._evaluated = (*state, now)
        if self._reporter is not None:
            self._reporter.after_row(row)
        for rule in self._rules if executor.values else ():
            if not self._world.over and (reason := rule.after_row(row)):  # a resumed run replays the same rows
                self._world.finish(reason)

    async def evaluated(self, free: bool = True) -> dict[str, float]:
        """Evaluate the models as they are now; return the scores of every split by name, ``test_accuracy``."""
        server, executor = self._parties.server, self._world.executor
        server = server.free(wired=self._wired) if free else server
        self._spawn_answering(free)
        protocol = self._parties.protocol
        scores = await coroutine_of(protocol, "evaluate", SERVER, server, self._splits, self._number)
        values: dict[str, float] = {}
        if executor.values:
            for split, handle in checked_scores(protocol, scores, self._splits).items():
                before = self._scores.get(split, ())
                metrics = checked_score(executor.force(handle), self._evaluator, self._metrics, before)
                self._scores[split] = tuple(metrics)
                values |= {f"{split}_{name}": value for name, value in metrics.items()}
        return values

    def _spent(self) -> dict[str, float]:
        """Return the largest ε that any client has spent so far, as the column ``epsilon``, where there are any."""
        if not self._releases or not self._world.executor.values:
            return {}
        return {"epsilon": max(releases.epsilon for releases in self._releases)}

    def _on_progress(self) -> None:
        recorder = self._recorder
        if recorder.rounds != self._rounds:
            self._rounds, asked = recorder.rounds, self._after_round
        else:
            asked = self._after_update
        for key, ends in asked:
            if ends(recorder):
                self._world.finish(key)
        if self._in_seconds:
            if not self._ticking:
                self._tick()
        else:
            every = self._every.every
            count = recorder.rounds if every.unit == "rounds" else recorder.updates
            if count % every.amount == 0 and count != self._last_count:
                self._last_count = count
                self._world.after(0.0, self._ask, Moment.OBSERVE, observer=True)
        if self._reporter is not None:
            self._reporter.after_step()

    def _done(self) -> Tally:
        return Tally(**self._recorder.counted(), time_s=self._world.now(), wall_clock_s=self._elapsed())


# --- courses that can be resumed --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Course:
    """The parts of a running simulation that a checkpoint needs: training in virtual time."""

    kernel: World
    parties: Parties
    recorder: Recorder
    conductor: Conductor

    @property
    def world(self) -> VirtualWorld:
        """The world, which counts its events."""
        assert isinstance(self.kernel, VirtualWorld), "nothing else has checkpoints"
        return self.kernel

    @property
    def executor(self) -> DeferredExecutor:
        """The executor, which can be replayed."""
        assert isinstance(self.kernel.executor, DeferredExecutor), "nothing else has checkpoints"
        return self.kernel.executor


class CourseKeeper(Protocol):
    """Keeps checkpoints of a run, and brings a new run to the newest one."""

    @property
    def note(self) -> str:
        """A note for the user about the run; empty if there is none."""

    def along(self, course: Course) -> AbstractContextManager[None]:
        """Keep checkpoints while the body executes the run. Raises ``CheckpointError``."""
