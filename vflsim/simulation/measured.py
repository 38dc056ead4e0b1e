"""The measures that a scenario asks for, of one finished run."""

from __future__ import annotations

from collections.abc import Mapping

from vflsim.errors import VflsimError
from vflsim.results.store.schema import RunTables
from vflsim.vocabulary.measure import FinishedRun, Measure, MeasuredValue


def measured(
    measures: Mapping[str, Measure], protocol: str, seed: int, tables: RunTables, error: VflsimError | None
) -> tuple[dict[str, MeasuredValue], VflsimError | None]:
    """Return what ``run.json`` keeps of each measure, and the run's error: its own, or that of a measure.

    A run that failed has no measures.
    """
    if error is not None or not measures:
        return {}, error
    frames = {name: table.to_pandas() for name, table in tables.named().items()}
    run = FinishedRun(protocol, seed, frames["metrics"], frames.get("rounds"), frames.get("events"))
    try:
        return {name: measure.measured(run) for name, measure in measures.items()}, None
    except VflsimError as failure:
        return {}, failure
