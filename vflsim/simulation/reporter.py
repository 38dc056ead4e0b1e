"""Progress of a run, and who tells it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vflsim.stopping.end_rule import EndRule, Tally, share_of

_APART_S = 0.1
"""Real seconds between two reports without a new row of metrics, at least."""


@dataclass(slots=True)
class Progress:
    """Progress of a run: virtual seconds, server steps, client steps, and the latest row of metrics.

    ``share`` is the completed share of the run as far as its stop rules tell, else 0. ``doing`` is what the run does
    beside its rounds, in a word: evaluating.
    """

    time_s: float
    rounds: int
    updates: int
    metrics: dict[str, float] = field(default_factory=dict)
    share: float = 0.0
    doing: str = ""


class Reporter:
    """Reports a run's progress, which ``done`` tells: at each row of metrics, and a few times a second in between."""

    def __init__(self, report: Callable[[Progress], None], rules: Sequence[EndRule], done: Callable[[], Tally]) -> None:
        self._report, self._rules, self._done = report, rules, done
        self._row: dict[str, float] = {}
        self._reported_at = 0.0

    def after_step(self) -> None:
        """Report a round or an update, unless a report is recent."""
        if time.monotonic() - self._reported_at > _APART_S:
            self.after_row(self._row)

    def evaluating(self) -> None:
        """Report that an evaluation begins, unless a report is recent."""
        if time.monotonic() - self._reported_at > _APART_S:
            self._tell("evaluating")

    def after_row(self, row: dict[str, float]) -> None:
        """Report a row of metrics."""
        self._row = row
        self._tell()

    def _tell(self, doing: str = "") -> None:
        self._reported_at, done = time.monotonic(), self._done()
        self._report(Progress(done.time_s, done.rounds, done.updates, self._row, share_of(self._rules, done), doing))
