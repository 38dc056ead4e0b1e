"""Measure the work of a run after its last row of metrics: it gathers its facts and writes its files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from vflsim.errors import ResultsError
from vflsim.learning.data.loaded import LoadedData
from vflsim.results.store.write import write_run
from vflsim.scenario.models import Scenario
from vflsim.simulation.execution import Execution
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import run_protocol


def ending_s(
    scenario: Scenario,
    name: str,
    data: LoadedData,
    execution: Execution,
    timing_only: bool,
    clock: Callable[[], float],
) -> float:
    """Return the seconds of ``clock`` from the last row of metrics until a run of one round is written.

    ``scenario`` has ``stop: rounds: 1``. The files are written into a temporary folder and deleted; where there is no
    room for them, the seconds end before they are written.
    """
    last = clock()

    def report(progress: Progress) -> None:
        nonlocal last
        last = clock()

    outcome = run_protocol(
        scenario, name, scenario.seeds[0], data, timing_only=timing_only, report=report, execution=execution
    )
    with suppress(OSError, ResultsError), tempfile.TemporaryDirectory() as folder:
        place, record = Path(folder) / "run", scenario.record.tables
        write_run(place, outcome.tables, outcome.weights, outcome.info, record, outcome.extra, outcome.views)
    return clock() - last
