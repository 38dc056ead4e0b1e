"""Calibration: the timing of a scenario from the events of a run, or from a log of the user's own."""

import copy
from pathlib import Path
from typing import Any

from vflsim.errors import DataError, ResultsError, ScenarioError
from vflsim.results.events import activities
from vflsim.results.observations import observed_log
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.manifest import stored_scenario
from vflsim.scenario.load import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.operation_counts import counted_flops
from vflsim.timing.measured.activity_log import COMPUTE, ActivityLog, read_log
from vflsim.timing.measured.calibration import Calibration, calibrated

_MARGIN = 2
"""Rounds that are counted beyond those of the run, whose last operations belong to rounds that never ended."""
_DOUBLINGS = 4


def calibrate(
    source: str | Path, run: str | None = None, *, alike: bool = False, after: float = 0.0, trust: bool = False
) -> Calibration:
    """Fit compute models, upload delays, latencies and bandwidths to a run's events, or to a CSV log.

    ``source`` is a results folder or a ``.csv`` file; ``run`` names one of several runs, ``wait/0`` for protocol and
    seed. ``alike`` fits all clients together, which suits any number of them. What begins in the first ``after``
    seconds is left out. Operations of a run have their FLOPs from a simulation of its scenario without training;
    ``trust`` lets it import modules that the scenario names.

    Raises DataError for a log that is not as ``timing.measured.activity_log`` says, ResultsError for results that
    cannot be read or kept no events, ScenarioError for a run that there is not.

    Example::

        fitted = calibrate("results/mine-live", alike=True)
        fitted.timing["clients"][0]["link"]["latency"]
    """
    path = Path(source)
    if path.suffix.lower() == ".csv":
        if run is not None:
            raise ScenarioError(f"--run {run} of a log", "vflsim calibrate --run", "a results folder", "leave it out")
        log = read_log(path, after)
    elif path.is_dir():
        log = log_of(_chosen(Results.open(path, trust), run), path, after)
    else:
        what = "is neither a results folder nor a .csv file" if path.exists() else "no such file or folder"
        raise DataError(what, str(path), "the folder of a run with record: events, or a log such as docs/live.md shows")
    try:
        return calibrated(log, alike)
    except ValueError as error:
        what, _, allowed = str(error).partition("; allowed: ")
        raise DataError(what, str(path), allowed) from None


def log_of(run: StoredRun, folder: Path, after: float = 0.0) -> ActivityLog:
    """Return what a run's events measure, with the FLOPs of each operation.

    Raises ResultsError for a run without events that begin after ``after`` seconds.

    Example: ``log_of(results.runs[0], results.folder).operations[1, "embed"].size``
    """
    wanted = _last_indices(run)
    scenario = _to_count(stored_scenario(folder, [run]), run)
    data = ScenarioData(scenario).of(scenario.training_of(run.info.protocol))
    rounds = run.info.counts["rounds"] + _MARGIN
    for doubled in range(_DOUBLINGS):
        longer = load(scenario.document.raw, {"stop": {"rounds": rounds << doubled}})
        flops = counted_flops(longer, run.info.protocol, run.seed, data)
        if all(len(flops.get(key, ())) > last for key, last in wanted.items()):
            break
    log = observed_log(run, flops, after)
    if not log.operations:
        raise ResultsError(f"no computation begins after {after:g} s", str(run.folder), "a shorter --after")
    return log


def _chosen(results: Results, name: str | None) -> StoredRun:
    """Return the run of a name, or the only one. Raises ScenarioError."""
    runs = {f"{run.protocol}/{run.seed}": run for run in results.runs}
    if name is None and len(runs) == 1:
        return results.runs[0]
    if name not in runs:
        what = f"there are {len(runs)} runs" if name is None else f"there is no run {name!r}"
        raise ScenarioError(what, "vflsim calibrate --run", ", ".join(runs), "name one of them, as PROTOCOL/SEED")
    return runs[name]


def _last_indices(run: StoredRun) -> dict[tuple[int, str], int]:
    """Return the index of the last operation of each party and kind."""
    events = activities(run)
    indices: dict[tuple[int, str], int] = {}
    computed = events.where(events.is_a(COMPUTE))
    for party, kind, index in zip(
        computed.party.tolist(), computed.kind.tolist(), computed.index.tolist(), strict=True
    ):
        key = party, computed.kinds[kind].partition(".")[2]
        indices[key] = max(index, indices.get(key, 0))
    return indices


def _to_count(scenario: Scenario, run: StoredRun) -> Scenario:
    """Return the scenario with this run's protocol alone, ended by rounds alone, and with no time of its own."""
    raw: dict[str, Any] = copy.deepcopy(scenario.document.raw)
    entry = raw["protocols"][run.info.protocol]
    if isinstance(entry, dict):
        entry = {key: value for key, value in entry.items() if key != "stop"}
    raw["protocols"] = {run.info.protocol: entry}
    raw["stop"] = {"rounds": run.info.counts["rounds"] + _MARGIN}
    raw["timing"], raw["record"] = {"network": {"kind": "dedicated"}}, "summary"
    for key in ("target", "measures", "evaluate"):
        raw.pop(key, None)
    return load(raw)
