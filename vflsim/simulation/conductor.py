"""Control of a run: evaluation, stop rules, progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vflsim.intervals.variation import Variation
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.client import Split
from vflsim.protocols.defaults import evaluation_of
from vflsim.protocols.made import checked_score, checked_scores, coroutine_of
from vflsim.scenario.stop import Evaluate, Stop
from vflsim.simulation.build import Parties
from vflsim.simulation.endless import EndlessRule
from vflsim.simulation.precision import PrecisionRule
from vflsim.streams import SERVER
from vflsim.vocabulary.metrics import NO_METRICS, Known
from vflsim.vocabulary.stop_rule import Row, row_of
from vflsim.vocabulary.targets import TargetWatch
from vflsim.world.clock import Moment
from vflsim.world.task import Signal, evaluation_task

_WHOLE = 2.0**53
"""From here on every float is a whole number, so any time is a multiple of a smaller step."""


@dataclass(slots=True)
class Progress:
    """Progress of a run: virtual seconds, server steps, client steps, and the latest row of metrics.

    ``share`` is the completed share of the run as far as its stop rules tell, else 0.
    """

    time_s: float
    rounds: int
    updates: int
    metrics: dict[str, float] = field(default_factory=dict)
    share: float = 0.0


class Conductor:
    """Evaluates and ends one run by the scenario's rules.

    Invariants: a row of metrics describes the end of its instant; no two rows describe the same state, except the last
    row, which always stands at the run's end; evaluation moves the clock only if it ``costs_time``. ``wired``: the
    messages of evaluations outside time pass the codec. ``variation``: what the scenario says of how rounds vary.
    ``metrics``: what the scenario declares, beside the metrics of every run.
    """

    def __init__(
        self,
        parties: Parties,
        stop: Stop,
        every: Evaluate,
        epochs: Callable[[int, int], float],
        splits: tuple[Split, ...],
        report: Callable[[Progress], None] | None = None,
        wired: bool = True,
        variation: Variation | None = None,
        metrics: Known = NO_METRICS,
    ) -> None:
        self._parties, self._stop, self._every, self._epochs, self._splits = parties, stop, every, epochs, splits
        self._world, self._recorder = parties.server.world, parties.shared.recorder
        self._report = report
        self._wired = wired
        self._metrics, self._scores = metrics, dict[Split, tuple[str, ...]]()
        self._evaluator = type(parties.server.learner).__name__
        # Looked at after every step; a scenario's own fields take a tenth of a microsecond each.
        self._limits = tuple(math.inf if n is None else n for n in (stop.rounds, stop.updates, stop.epochs))
        self._in_seconds = every.every.unit == "seconds"
        self._releases = parties.releases
        self._trigger: Signal | None = None
        self._asked = self._ticking = False
        self._evaluated: tuple[int, int, float] | None = None
        self._number = 0
        self.began = time.monotonic()
        """Wall-clock start of the run; a resumed run subtracts the time that it had taken before."""
        self._reported = 0.0
        self._last_count = 0
        self._precise = PrecisionRule(stop.precision, variation) if stop.precision is not None else None
        self._endless = EndlessRule(parties, stop, every, self._releases)
        self._watches = [] if stop.target is None else [TargetWatch(target) for target in stop.target.each]
        self._rules, self._rows = dict(stop.rules or {}), list[Row]()
        self.ended_because = ""
        """Why a stop rule on metrics has ended the run, in words."""
        self._round_ended = 0.0
        self._row: dict[str, float] = {}

    def start(self, begin: Callable[[], None]) -> None:
        """Evaluate the initial models, then start the parties by ``begin``, and the timer that ends the run."""
        self._parties.shared.progressed = self._on_progress
        if self._endless.needed:
            self._parties.shared.computed = self._endless.add
        elif self._stop.wall_clock is not None:  # checked here, too: the run may count nothing
            self._parties.shared.computed = self._look_at_the_clock
        self._world.spawn(self._observe(partial(self._begin, begin)), "observer", 0, observer=True)
        if self._stop.epsilon is not None:
            for releases in self._releases:
                releases.end_at(self._stop.epsilon, lambda: self._world.finish("epsilon"))

    def _begin(self, begin: Callable[[], None]) -> None:
        """Start the parties, and the time within which the run has to end."""
        if self._stop.time is not None:
            left = max(0.0, self._stop.time - self._world.now())
            self._world.after(left, lambda: self._world.finish("time"), Moment.OBSERVE, observer=True)
        begin()

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
                    evaluation_of(self._parties.protocol),
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
        server = self._parties.server.free(wired=self._wired) if free else self._parties.server
        recorder, executor = self._recorder, self._world.executor
        state = recorder.rounds, recorder.updates
        self._number += 1
        values: dict[str, float] = {}
        if executor.values or not free:
            self._spawn_answering(free)
            protocol = self._parties.protocol
            scores = await coroutine_of(evaluation_of(protocol), "evaluate", SERVER, server, self._splits, self._number)
        if executor.values:
            for split, handle in checked_scores(protocol, scores, self._splits).items():
                before = self._scores.get(split, ())
                found = checked_score(executor.force(handle), self._evaluator, self._metrics, before)
                self._scores[split] = tuple(found)
                values |= {f"{split}_{name}": value for name, value in found.items()}
            for loss in recorder.losses_pending():
                executor.force(loss)
            values |= self._spent()
        now = self._world.now() if at is None else at
        row = recorder.metrics(now, values)
        self._evaluated = (*state, now)
        self._report_progress(row)
        held = [watch.add(row) for watch in self._watches]  # a resumed run replays the same rows
        if any(held) and not self._world.over:
            self._world.finish("target")
        if executor.values:
            self._ask_rules(row)

    def _ask_rules(self, row: dict[str, float]) -> None:
        """Ask the stop rules on metrics about all rows; a resumed run asks about the same ones again."""
        self._rows += [row_of(row)] if self._rules else []
        for name, rule in self._rules.items() if not self._world.over else ():
            if why := rule.asked(tuple(self._rows)):
                self.ended_because = f"{name}: {why}"
                self._world.finish(name)
                return

    def _spent(self) -> dict[str, float]:
        """Return the largest ε that any client has spent so far, as the column ``epsilon``, where there are any."""
        if not self._releases or not self._world.executor.values:
            return {}
        return {"epsilon": max(releases.epsilon for releases in self._releases)}

    def _on_progress(self) -> None:
        recorder, (rounds, updates, epochs) = self._recorder, self._limits
        if recorder.rounds >= rounds:
            self._world.finish("rounds")
        if recorder.updates >= updates:
            self._world.finish("updates")
        if epochs < math.inf and self._epochs(recorder.rounds, recorder.embeddings_used) >= epochs:
            self._world.finish("epochs")
        if self._precise is not None and recorder.rounds > self._precise.rounds:
            now, before = self._world.now(), self._round_ended
            self._round_ended = now
            if self._precise.add(now - before):
                self._world.finish("precision")
        if self._in_seconds:
            if not self._ticking:
                self._tick()
        else:
            every = self._every.every
            count = recorder.rounds if every.unit == "rounds" else recorder.updates
            if count % every.amount == 0 and count != self._last_count:
                self._last_count = count
                self._world.after(0.0, self._ask, Moment.OBSERVE, observer=True)
        if self._report is not None:
            self._report_progress()

    def _look_at_the_clock(self, operation: Operation[Any]) -> None:
        if self._stop.wall_clock is not None and time.monotonic() - self.began >= self._stop.wall_clock:
            self._world.finish("wall_clock")

    def _report_progress(self, row: dict[str, float] | None = None) -> None:
        """Report progress, at most ten times a second."""
        if self._report is None:
            return
        wall = time.monotonic()
        if row is not None:
            self._row = row
        if row is not None or wall - self._reported > 0.1:
            self._reported = wall
            now, recorder = self._world.now(), self._recorder
            share = self._stop.share(
                time=now,
                rounds=recorder.rounds,
                updates=recorder.updates,
                epochs=self._epochs(recorder.rounds, recorder.embeddings_used),
                wall_clock=wall - self.began,
            )
            self._report(Progress(now, recorder.rounds, recorder.updates, self._row, share))
