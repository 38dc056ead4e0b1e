"""Concurrent runs, each in its own process, so that a crash of one leaves the others alone."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import count, islice
from multiprocessing import Pipe, resource_tracker
from typing import Self

from joblib.externals.loky.backend import get_context
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from vflsim.errors import DataError, ResultsError, RunError, ScenarioError, VflsimError
from vflsim.learning.data.shelf import SharedData, Shelf, can_share
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.reporter import Progress
from vflsim.studies.engines import Reports, Unit
from vflsim.studies.engines.handover import Parcel, begin, death, execute, mention_log, pickled, report_of_lost
from vflsim.studies.runs.interrupt import SIGNALS, Interrupt
from vflsim.studies.runs.progress import Report
from vflsim.studies.runs.spec import StudySpec

GRACE_S = 30.0
"""Seconds that workers have to end by themselves."""
_PAUSE_S = 0.1
_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables with the number of threads that PyTorch, NumPy and SciPy start when they are imported."""
_CONTEXT = get_context("loky")
"""How processes start: as new interpreters, which do not import the main module."""


@contextlib.contextmanager
def _blocked() -> Iterator[None]:
    """Block the signals that end a study, where a process can: Windows tells all processes of a console by itself."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    """One process of loky's, this side's end of its pipe, and its current unit.

    ``begun``: it has begun at least one run. loky gives up all processes of an executor if one of them dies, so each
    has an executor of its own.
    """

    def __init__(self, threads: int) -> None:
        self.link, self._its = Pipe()
        self._executor = ProcessPoolExecutor(
            1, context=_CONTEXT, initializer=begin, initargs=(self._its,), env=dict.fromkeys(_POOLS, str(threads))
        )
        self.unit: Unit | None = None
        self.future: Future[Report | VflsimError] = Future()
        self.begun = self.dead = False

    def take(self, unit: Unit, study: _Study) -> None:
        """Begin a unit. The process inherits blocked signals: interrupts reach it through its pipe."""
        self.unit, self._study, self._since = unit, study, time.monotonic()
        self._latest: Progress | None = None
        resource_tracker.ensure_running()  # starting it later would unblock the signals
        with _blocked():
            self.future = self._executor.submit(execute, study.parcel, unit.run, unit.spec.log_of(unit.run))

    def news(self) -> Iterator[Progress]:
        """Yield the progress of the unit since the last time."""
        with contextlib.suppress(EOFError, OSError):
            while self.link.poll():
                self.begun, word = True, self.link.recv()
                if word is not None:
                    self._latest = word
                    yield word

    def word(self) -> Report | VflsimError:
        """Return the report or the error of the unit that has ended. Raises RunError if no run can begin."""
        try:
            return self.future.result()
        except BrokenProcessPool as error:
            match = re.search(r"\((-?\d+)\)", str(error))  # the exit status stands nowhere else
            status = None if match is None else int(match[1])
            self.dead = True
            if not self.begun and status is not None and status >= 0:
                what = f"a worker process ended with status {status} before its first run"
                raise RunError(what, "workers", remedy="use one worker") from None
            return death(status, self._latest)

    def lost(self, unit: Unit, error: VflsimError) -> Report:
        """Write the unit as failed; return its report."""
        return report_of_lost(unit.spec, unit.run, error, time.monotonic() - self._since)

    def end(self) -> None:
        """Kill the process."""
        self.link.close()
        self._its.close()
        self._executor.shutdown(kill_workers=True)


class Crew:
    """Up to ``size`` worker processes, started on demand and reused.

    This process reads the data of a study, unless they are on the ``shelf`` already, and workers map its memory (on
    Linux; elsewhere each worker reads them by itself). Libraries have as many threads in a worker as a run has.

    Invariants: a worker executes at most one run; a run fails if its worker dies; no worker outlives the ``with`` block
    or the process that started it.
    """

    def __init__(self, size: int, shelf: Shelf | None = None) -> None:
        self._size, self._shelf = size, shelf
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        """Take a unit whenever a worker is free; yield the reports in the order in which they end.

        Raises ResultsError if a run cannot be written, ScenarioError if workers cannot read a study, and RunError if
        workers cannot start. After an error, or if the iterator is closed early, all workers end.
        """
        queue = self._with_studies(units)
        try:
            while True:
                interrupt.check()
                for unit, study in islice(queue, self._size - len(self._busy())):
                    self._hand_over(unit, study)
                    unit.watcher.began(unit.run)
                if not self._busy():
                    break
                wait([worker.future for worker, _ in self._busy()], _PAUSE_S, FIRST_COMPLETED)
                for worker, unit in self._busy():
                    ended = worker.future.done()  # asked first: no news comes after the end
                    for progress in worker.news():
                        unit.watcher.progressed(unit.run, progress)
                    if ended:
                        yield unit, self._report(worker, unit)
        finally:
            if self._busy():
                self.dismiss()

    def dismiss(self) -> None:
        """End all workers, and remove the logs of unfinished runs.

        A run under way may write a checkpoint first. Workers that have not begun a run are killed at once, others after
        ``GRACE_S`` or at a second interrupt.
        """
        busy, workers, self._workers = self._busy(), self._workers, []
        try:
            for worker, _ in busy:
                with contextlib.suppress(OSError):
                    worker.link.send(None)
                [*worker.news()]
            wait([worker.future for worker, _ in busy if worker.begun], GRACE_S)
        finally:
            for worker in workers:
                worker.end()
            for _, unit in busy:
                with contextlib.suppress(OSError):
                    unit.spec.log_of(unit.run).unlink()

    def _busy(self) -> list[tuple[_Worker, Unit]]:
        return [(worker, worker.unit) for worker in self._workers if worker.unit is not None]

    def _hand_over(self, unit: Unit, study: _Study) -> None:
        worker = self._free(unit.spec.options.execution.threads)
        try:
            worker.take(unit, study)
        except BrokenProcessPool:  # it has died without a unit
            self._remove(worker)
            self._hand_over(unit, study)

    def _remove(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.end()

    def _free(self, threads: int) -> _Worker:
        """Return an idle worker, or make one whose libraries have ``threads``: fewer than ``size`` are busy."""
        for worker in self._workers:
            if worker.unit is None:
                return worker
        self._workers.append(_Worker(threads))
        return self._workers[-1]

    def _with_studies(self, units: Iterable[Unit]) -> Iterator[tuple[Unit, _Study]]:
        """Yield every unit with its study, made ready once for units that follow each other."""
        study: _Study | None = None
        for unit in units:
            if study is None or unit.spec is not study.spec:
                study = _Study.of(unit.spec, self._shelf)
            yield unit, study

    def _report(self, worker: _Worker, unit: Unit) -> Report:
        """Return the report of a unit that has ended, or whose process has."""
        worker.unit, word = None, worker.word()
        if worker.dead:
            self._remove(worker)
        if isinstance(word, ResultsError | ScenarioError):
            raise word
        report = word if isinstance(word, Report) else worker.lost(unit, word)
        if report.error is not None:
            mention_log(report.error, unit.spec.log_of(unit.run))
        return report


@dataclass(frozen=True, slots=True)
class _Study:
    """A study that is ready for workers, and its data, whose files exist as long as they do."""

    spec: StudySpec
    parcel: Parcel
    data: tuple[SharedData, ...]

    @classmethod
    def of(cls, spec: StudySpec, shelf: Shelf | None) -> Self:
        """Make a study ready. Raises ScenarioError if it cannot be pickled."""
        data = _shared(spec, shelf)
        files = {dtype: (each.outline, f"/proc/{os.getpid()}/fd/{each.descriptor}") for dtype, each in data.items()}
        return cls(spec, Parcel(next(_numbers), pickled(spec), files), tuple(data.values()))


_numbers = count()


def _shared(spec: StudySpec, shelf: Shelf | None) -> dict[str, SharedData]:
    """Return the data of a study in files for workers; none where they cannot be read, so that every run reports it.

    Without room for the files, too, workers read the data by themselves.
    """
    if not can_share():
        return {}
    protocols = dict.fromkeys(protocol for protocol, _ in spec.runs)
    try:
        return ScenarioData(spec.scenario, shelf).shared(protocols)
    except (DataError, OSError):
        return {}
