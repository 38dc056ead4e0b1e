"""One unit as a task of a Ray worker: the run's files travel back as bytes."""

from __future__ import annotations

import pickle
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vflsim.errors import ResultsError, RunError, VflsimError
from vflsim.results.store.write import run_folder
from vflsim.scenario.data import ScenarioData
from vflsim.simulation.reporter import Progress
from vflsim.studies.engines.crashed import not_handed_over
from vflsim.studies.engines.ray_files import Luggage, relocated
from vflsim.studies.runs.interrupt import Interrupt
from vflsim.studies.runs.progress import Report, StudyRun
from vflsim.studies.runs.spec import StudySpec

_EVERY_S = 1.0


@dataclass(slots=True)
class _Held:
    """The study that this worker holds, by the digest of its pickle; ``folder`` has its files."""

    digest: str
    spec: StudySpec
    data: ScenarioData
    folder: tempfile.TemporaryDirectory[str]


_held: list[_Held] = []
"""The latest study: a worker's tasks come from one study, or from one point of a sweep after the other."""


def execute(
    digest: str, references: list[Any], run: StudyRun, number: int, board: Any
) -> tuple[Report | VflsimError, dict[str, bytes]]:
    """Execute one run; return its report, or the error of a run that could not start, and its files by name.

    ``references`` are Ray's, of the pickled study and its ``Luggage``; they are trusted: only the study's own process
    puts objects there.
    """
    import ray

    _tell(ray, board, number, None)
    try:
        held = _hold(ray, digest, references)
    except Exception as error:
        return not_handed_over(f"{type(error).__name__}: {error}"), {}
    told = time.monotonic()

    def report(progress: Progress) -> None:
        nonlocal told
        if time.monotonic() >= told + _EVERY_S:
            told = time.monotonic()
            _tell(ray, board, number, progress)

    with tempfile.TemporaryDirectory(prefix="vflsim-run-") as folder:
        spec = replace(held.spec, folder=Path(folder))
        try:
            word = spec.carry_out(run, held.data, report, Interrupt())
        except VflsimError as error:
            return error if isinstance(error, ResultsError | RunError) else RunError(*error.args), {}
        except Exception as error:
            return RunError(f"{type(error).__name__}: {error}"), {}
        place = run_folder(folder, run.protocol, run.seed)
        return word, {path.name: path.read_bytes() for path in sorted(place.iterdir())}


def _hold(ray: Any, digest: str, references: list[Any]) -> _Held:
    """Fetch a study and its files, unless this worker holds them. Raises whatever unpickling raises."""
    if not _held or _held[0].digest != digest:
        parcel, luggage = ray.get(references)
        folder = tempfile.TemporaryDirectory(prefix="vflsim-files-", ignore_cleanup_errors=True)
        assert isinstance(luggage, Luggage), "the second object is the luggage"
        places = luggage.unpack(Path(folder.name))
        spec: StudySpec = pickle.loads(parcel)
        options = replace(spec.options, checkpoint_every=None, resume=False)
        spec = replace(spec, scenario=relocated(spec.scenario, places), options=options)
        _held[:] = [_Held(digest, spec, ScenarioData(spec.scenario), folder)]
    return _held[0]


def _tell(ray: Any, board: Any, number: int, progress: Progress | None) -> None:
    board.tell.remote(number, pickle.dumps(progress))
