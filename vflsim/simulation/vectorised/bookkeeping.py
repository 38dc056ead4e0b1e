"""Make rows of metrics from chunks of rounds, and find the end: conductor and recorder of the vectorised path."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from vflsim.books import Counts, EndedAmounts, StepEnds
from vflsim.recurrences.chunk import AgeSums, Chunk, Direction, Moves, undecided
from vflsim.scenario.sections import Every
from vflsim.simulation.vectorised.energy import ROW, Asked, EnergyBooks
from vflsim.stopping.end_rule import End, EndRule, Stretch
from vflsim.timing.floats import Floats
from vflsim.world.run_tables import ENERGY, MetricsRow, metrics_columns, metrics_row


class EarliestEnd:
    """Looks for the end of a run, chunk by chunk."""

    def __init__(self, rules: Sequence[EndRule]) -> None:
        order = {"time": 1, "update": 2}  # each looks whether it precedes the earliest end so far
        self._rules = sorted(rules, key=lambda rule: order.get(rule.by, 0))
        self.used = 0
        """The embeddings that the server has used in the rounds so far."""
        self._before = 0.0

    def find(self, chunk: Chunk, updates: int, waiting: Floats) -> End | None:
        """Return the end of the run if it falls into ``chunk``.

        ``updates`` counts the client steps before the chunk's first round began; ``waiting`` are the times of later
        steps from earlier rounds. Raises ``UndecidedError``.
        """
        stretch, end = Stretch(chunk, self.used, self._before, updates, waiting), None
        for rule in self._rules:
            end = rule.in_chunk(stretch, end)
        self.used, self._before = int(stretch.used_by[-1]), float(chunk.ends[-1])
        return end


def never_still(chunk: Chunk, before: float, rounds: int) -> None:
    """Raise ``UndecidedError`` if one of the first ``rounds`` takes no time: the event path may report no progress."""
    durations = np.diff(chunk.ends[:rounds], prepend=before)
    still = np.flatnonzero(~(durations > 0))
    if len(still):
        place = int(still[0])
        raise undecided("a round takes no time", chunk.first + place, float(chunk.ends[place]))


# --- evaluation schedules ---------------------------------------------------------------------------------------------


class EvaluationSchedule(Protocol):
    """Times of evaluation, chunk by chunk; the next chunk gives those from the end of a chunk's last round on."""

    def times(self, chunk: Chunk) -> Floats:
        """Return the instants before the end of the chunk's last round, ascending (n,)."""


def evaluation_schedule(every: Every) -> EvaluationSchedule:
    """Make the schedule of ``evaluate.every``."""
    if every.unit == "seconds":
        return _Seconds(every.amount)
    return _Counted(int(every.amount), every.unit == "rounds")


class _Counted:
    """Evaluates at the instants in which the number of rounds, or of client steps, passes a multiple of ``amount``."""

    def __init__(self, amount: int, rounds: bool) -> None:
        self._amount, self._of_rounds = amount, rounds
        self._count = 0
        self._later = np.empty(0)

    def times(self, chunk: Chunk) -> Floats:
        times = np.sort(_progress(self._later, chunk.ends if self._of_rounds else chunk.steps, after=-math.inf))
        early = int(np.searchsorted(times, chunk.ends[-1]))
        number = self._count + 1 + np.arange(early)
        self._count, self._later = self._count + early, times[early:]
        due: Floats = times[:early][number % self._amount == 0]
        return due


class _Seconds:
    """Evaluates at multiples of a duration, and skips those without a change since the last one."""

    def __init__(self, amount: float) -> None:
        self._amount = amount
        self._last = -math.inf
        self._next: float | None = None
        self._later = np.empty(0)

    def times(self, chunk: Chunk) -> Floats:
        horizon, progress = float(chunk.ends[-1]), None
        times: list[float] = []
        while True:
            if self._next is None:
                if progress is None:
                    progress = np.sort(_progress(self._later, chunk.ends, chunk.steps, after=self._last))
                place = int(np.searchsorted(progress, self._last, side="right"))
                if place == len(progress) or progress[place] >= horizon:
                    break
                now = float(progress[place])
                at = math.ceil(now / self._amount) * self._amount
                self._next = now + max(0.0, at - now)
            if self._next >= horizon:
                break
            times.append(self._next)
            self._last, self._next = self._next, None
        unseen = self._last if self._next is None else self._next
        self._later = _progress(self._later, chunk.ends, chunk.steps, after=unseen)
        return np.array(times)


def _progress(*times: Floats, after: float) -> Floats:
    return np.concatenate([each[(each > after) & (each < math.inf)] for each in times])


Scored: TypeAlias = Callable[[float, int, int], tuple[float, Mapping[str, float]]]
"""Trains up to a time (s), with so many rounds and client steps; gives the loss since the row before, and scores."""


class Books:
    """Metrics of one run; chunks must come in order, up to the one that holds the ``end``.

    ``scored`` gives what training adds to a row; it is called for each row, in their order, the initial one included.
    Without ``ages`` rows have none: they take most of the time where clients have a pace of their own.
    """

    def __init__(
        self,
        rules: Sequence[EndRule],
        every: Every,
        energy: EnergyBooks | None = None,
        scored: Scored | None = None,
        ages: bool = True,
    ) -> None:
        self._scored, self._with_ages = scored, ages
        self._ends, self._schedule = EarliestEnd(rules), evaluation_schedule(every)
        self._steps = EndedAmounts[StepEnds]()
        self._up, self._down, self._peer = (EndedAmounts[Moves]() for _ in range(3))
        self._ways: dict[Direction, EndedAmounts[Moves]] = {"up": self._up, "down": self._down, "peer": self._peer}
        self._energy = energy
        self.joules = [0.0]
        """The energy until the beginning, and until the end of each round, where it is counted."""
        self._ages = AgeSums()  # since the latest row
        self._rows: list[dict[str, float]] = []
        self._horizon = 0.0
        self._begun = self._ended = self._aged = 0  # rounds of the chunk with noted parts, consequences, ages
        self.counts = Counts()
        """What the run has counted until the latest row."""
        self.end: End | None = None

    def begin(self) -> None:
        """Write the initial row."""
        self._write(0.0, 0, 0)

    @property
    def row(self) -> Mapping[str, float]:
        """The latest row."""
        return self._rows[-1]

    @property
    def embeddings_used(self) -> int:
        """The embeddings that the server has used in the chunks so far."""
        return self._ends.used

    def columns(self) -> dict[str, Any]:
        """Return the columns of the metrics so far."""
        return metrics_columns(self._rows)

    def take(self, chunk: Chunk) -> int:
        """Add a chunk; return how many of its rounds belong to the run. Raises ``UndecidedError``."""
        self._begun = self._ended = self._aged = 0
        rows = len(self._rows)
        self._expect(chunk.before, 0, len(chunk.ends))
        self.end = end = self._ends.find(chunk, self._steps.total, self._waiting_steps())
        done = len(chunk.ends) if end is None else end.rounds
        never_still(chunk, self._horizon, done)
        for now in self._schedule.times(chunk).tolist():
            if end is not None and now >= end.time:
                break
            rounds = int(np.searchsorted(chunk.ends, now, side="right"))
            self._settle(chunk, rounds, now)
            if (chunk.first + rounds, self._steps.total) != (self.counts.rounds, self.counts.updates):
                self._write(now, chunk.first + rounds, self._steps.total)
        if end is not None:
            self._finish(chunk, end)
        else:
            self._note(chunk, done, done)
            self._age(chunk, done)
            self._horizon = float(chunk.ends[-1])
            self._count(np.nextafter(self._horizon, 0.0))
        if self._energy is not None:
            self._count_energy(chunk, done, self._rows[rows:])
        return done

    def _count_energy(self, chunk: Chunk, done: int, rows: list[dict[str, float]]) -> None:
        """Add the energy to new rows, and note that until the end of each of the first ``done`` rounds."""
        assert self._energy is not None, "the run counts energy"
        moments = Asked.of(chunk, done, [row["time_s"] for row in rows])
        joules = np.array(self._energy.take(chunk, moments, self.end))
        self.joules += joules[moments.rounds != ROW].tolist()
        for row, energy in zip(rows, joules[moments.rounds == ROW].tolist(), strict=True):
            row[ENERGY] = energy

    def _settle(self, chunk: Chunk, rounds: int, now: float) -> None:
        """Count everything up to the end of the instant ``now``, when ``rounds`` of the chunk are done."""
        self._note(chunk, rounds + 1, rounds)
        self._age(chunk, rounds)
        self._count(now)

    def _count(self, now: float) -> None:
        self._steps.until(now)
        for way in self._ways.values():
            way.until(now)

    def _note(self, chunk: Chunk, begun: int, ended: int) -> None:
        """Add what belongs to the first ``begun`` rounds, and the consequences of the first ``ended`` ones."""
        if ended > self._ended:
            self._expect(chunk.after, self._ended, ended)
            if not chunk.steps_during:
                self._steps.expect(StepEnds(chunk.steps[self._ended : ended]))
            self._ended = ended
        if begun > self._begun:
            self._expect(chunk.during, self._begun, begun)
            if chunk.steps_during:
                self._steps.expect(StepEnds(chunk.steps[self._begun : begun]))
            self._begun = begun

    def _waiting_steps(self) -> Floats:
        """Return the times of client steps of rounds so far that are later (n,)."""
        return np.concatenate([np.empty(0), *(steps.ends[steps.ends < np.inf] for steps in self._steps.waiting)])

    def _expect(self, transfers: tuple[Moves, ...], start: int, stop: int) -> None:
        for moves in transfers:
            self._ways[moves.direction].expect(moves.only(slice(start, stop)))

    def _age(self, chunk: Chunk, rounds: int) -> None:
        if self._with_ages and rounds > self._aged:
            self._ages += chunk.ages(self._aged, rounds)
            self._aged = rounds

    def _finish(self, chunk: Chunk, end: End) -> None:
        now, rounds = end.time, end.rounds
        if end.moment == "round":  # before the gradients of this round leave
            self._note(chunk, rounds, rounds - 1)
            waited = chunk.waited[rounds - 1] == now
            late = self._steps.ending(now) + self._down.ending(now) + self._peer.ending(now)
            late += 0 if waited else self._up.ending(now)
            if late and not chunk.ordered:
                raise undecided("an activity ends with the server's last step", chunk.first + rounds - 1, now)
        else:
            self._note(chunk, rounds + 1, rounds)
        if end.moment == "update":
            self._refuse_ties(chunk, end)
        self._age(chunk, rounds)
        self._count(now)
        for way in self._ways.values():
            for moves in way.waiting:
                cut = moves.only((moves.began < now) & (moves.ends > now))
                way.total += int((cut.through(now) * (1 if cut.copies is None else cut.copies)).sum())
        self._write(now, chunk.first + rounds, self._steps.total if end.updates is None else end.updates)

    def _refuse_ties(self, chunk: Chunk, end: End) -> None:
        """Raise ``UndecidedError`` if a message arrives at the same instant as the client step that ends the run.

        A step of zero duration follows the arrivals of its instant.
        """
        now, down = end.time, self._down.ending(end.time)
        up = self._up.ending(now) + self._peer.ending(now)
        if up + down == 0:
            return
        first = chunk.steps if chunk.steps.ndim == 2 else chunk.steps[:, 0]
        answers = [] if chunk.steps_during else [moves.ends for moves in chunk.after if moves.direction == "down"]
        at_once = sum(np.count_nonzero((ends == now) & (first == now)) for ends in answers)
        if up or not (at_once == down == self._steps.ending(now)):
            raise undecided("a message arrives with the last client step", chunk.first + end.rounds, now)

    def _write(self, now: float, rounds: int, updates: int) -> None:
        ages, self._ages = self._ages, AgeSums()
        sent = {f"bytes_{direction}": way.total for direction, way in self._ways.items()}
        loss, scores = (math.nan, {}) if self._scored is None else self._scored(now, rounds, updates)
        facts = MetricsRow(
            rounds, updates, **sent, time_s=now, train_loss=loss, row_ages=ages.rows, client_ages=ages.clients
        )
        self.counts = facts
        self._rows.append(metrics_row(facts, scores, self._energy is not None))
