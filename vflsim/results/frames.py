"""What a rule about a finished run reads, and how it says what is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd

from vflsim.results.schema import RunInfo, RunTables

ROUNDING = 1e-12
"""How far a sum of times may be off, relative to 1 s more than the time itself."""
SHOWN = 3
"""How many examples of one broken rule are spelt out; the rest are counted."""


class Frames:
    """The tables of one run as pandas frames (None: not recorded), and when the run ended (NaN: no metrics row)."""

    def __init__(self, tables: RunTables) -> None:
        self.metrics: pd.DataFrame = tables.metrics.to_pandas()
        self.rounds: pd.DataFrame | None = None if tables.rounds is None else tables.rounds.to_pandas()
        self.events: pd.DataFrame | None = None if tables.events is None else tables.events.to_pandas()
        self.end = float(self.metrics["time_s"].iloc[-1]) if len(self.metrics) else float("nan")


Rule = Callable[[Frames, RunInfo], Iterator[str]]
"""Yields one sentence for every way in which a run breaks it."""


def each(broken: pd.DataFrame, sentence: str) -> Iterator[str]:
    """One sentence for each of the first few events that break a rule, and how many more do."""
    for _, event in broken.head(SHOWN).iterrows():
        to = f" to {event['peer']}" if isinstance(event["peer"], str) else ""
        span = f"{event['start_s']} s to {event['end_s']} s"
        yield f"events: {event['party']}'s {event['kind']}{to} (index {event['index']}, {span}) {sentence}"
    if len(broken) > SHOWN:
        yield f"events: … and {len(broken) - SHOWN} more: {sentence}"
