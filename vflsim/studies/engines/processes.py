"""Concurrent runs, each in its own process, so that a crash of one leaves the others alone."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import count, islice
from multiprocessing import Pipe, resource_tracker
from typing import Self, TypeAlias

from joblib.externals.loky.backend import get_context
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from vflsim.errors import DataError, ResultsError, RunError, VflsimError
from vflsim.learning.data.shelf import SharedData, Shelf, can_share
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.reporter import Progress
from vflsim.studies.engines import Group, Reports, Unit
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
    """One process of loky's, this side's end of its pipe, and the group of units that it executes.

    ``begun``: it has begun at least one run. loky gives up all processes of an executor if one of them dies, so each
    has an executor of its own.
    """

    def __init__(self, threads: int) -> None:
        self.link, self._its = Pipe()
        self._executor = ProcessPoolExecutor(
            1, context=_CONTEXT, initializer=begin, initargs=(self._its,), env=dict.fromkeys(_POOLS, str(threads))
        )
        self.group: Group | None = None
        self.future: Future[VflsimError | None] = Future()
        self.begun = self.dead = False

    def take(self, group: Group, studies: _Studies) -> None:
        """Begin a group. The process inherits blocked signals: interrupts reach it through its pipe."""
        self.group, self.studies, self._since = group, studies, time.monotonic()
        self.latest: dict[int, Progress] = {}
        units = group.left.values()
        parcels = [studies[id(each.spec)].parcel for each in units]
        runs, logs = [each.run for each in units], [each.spec.log_of(each.run) for each in units]
        resource_tracker.ensure_running()  # starting it later would unblock the signals
        with _blocked():
            self.future = self._executor.submit(execute, parcels, runs, logs)
        self._its.close()  # the process has it: half a word of one that is killed then ends the pipe

    def words(self) -> Iterator[tuple[int, Progress | Report | VflsimError]]:
        """Yield what the runs have said since the last time, each with its position in the group."""
        with contextlib.suppress(EOFError, OSError):
            while self.link.poll():
                self.begun, word = True, self.link.recv()
                if word is not None:
                    if isinstance(word[1], Progress):
                        self.latest[word[0]] = word[1]
                    yield word

    def status(self) -> int | None:
        """Return the exit status of a process that has died, if it is known, and note that it has.

        Raises the error that ends the study: of units that no worker can execute, and RunError if no run can begin.
        """
        try:
            if (error := self.future.result()) is not None:
                raise error
        except BrokenProcessPool as broken:
            match = re.search(r"\((-?\d+)\)", str(broken))  # the exit status stands nowhere else
            status = None if match is None else int(match[1])
            self.dead = True
            if not self.begun and status is not None and status >= 0:
                what = f"a worker process ended with status {status} before its first run"
                raise RunError(what, "workers", remedy="use one worker") from None
            return status
        return None

    def report(self, unit: Unit, word: Report | VflsimError) -> Report:
        """Return the report of a unit that has ended; write the unit as failed if there is none.

        Raises ResultsError, which ends the whole study.
        """
        if isinstance(word, ResultsError):
            raise word
        if isinstance(word, VflsimError):
            word = report_of_lost(unit.spec, unit.run, word, time.monotonic() - self._since)
        if word.error is not None:
            mention_log(word.error, unit.spec.log_of(unit.run))
        return word

    def end(self) -> None:
        """Kill the process."""
        self.link.close()
        self._its.close()
        self._executor.shutdown(kill_workers=True)


class Crew:
    """Up to ``size`` worker processes, started on demand and reused.

    This process reads the data of a study, unless they are on the ``shelf`` already, and workers map its memory (on
    Linux; elsewhere each worker reads them by itself). Libraries have as many threads in a worker as a run has.

    Invariants: a worker executes at most one group; a run fails if its worker dies while it is alone, and begins again
    alone after a death in a group; no worker outlives the ``with`` block or the process that started it.
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
        queue, again = self._with_studies(units), deque[tuple[Group, _Studies]]()

        def ready() -> tuple[Group, _Studies] | None:
            return again.popleft() if again else next(queue, None)

        try:
            while True:
                interrupt.check()
                for group, studies in islice(iter(ready, None), self._size - len(self._busy())):
                    self._hand_over(group, studies)
                    group.begin()
                if not self._busy():
                    break
                wait([worker.future for worker, _ in self._busy()], _PAUSE_S, FIRST_COMPLETED)
                for worker, group in self._busy():
                    ended = worker.future.done()  # asked first: no words come after the end
                    for position, word in worker.words():
                        if isinstance(word, Progress):
                            group.progressed(position, word)
                        else:
                            unit = group.ended(position)
                            yield unit, worker.report(unit, word)
                    if ended:
                        status = self._freed(worker)
                        if len(group.left) > 1:
                            again.extend((each, worker.studies) for each in group.apart())
                            continue
                        for position in [*group.left]:
                            unit = group.ended(position)
                            yield unit, worker.report(unit, death(status, worker.latest.get(position)))
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
                [*worker.words()]
            wait([worker.future for worker, _ in busy if worker.begun], GRACE_S)
        finally:
            for worker in workers:
                worker.end()
            for unit in (unit for _, group in busy for unit in group.left.values()):
                with contextlib.suppress(OSError):
                    unit.spec.log_of(unit.run).unlink()

    def _busy(self) -> list[tuple[_Worker, Group]]:
        return [(worker, worker.group) for worker in self._workers if worker.group is not None]

    def _hand_over(self, group: Group, studies: _Studies) -> None:
        worker = self._free(next(iter(group.left.values())).spec.options.execution.threads)
        try:
            worker.take(group, studies)
        except BrokenProcessPool:  # it has died without a group
            self._remove(worker)
            self._hand_over(group, studies)

    def _remove(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.end()

    def _free(self, threads: int) -> _Worker:
        """Return an idle worker, or make one whose libraries have ``threads``: fewer than ``size`` are busy."""
        for worker in self._workers:
            if worker.group is None:
                return worker
        self._workers.append(_Worker(threads))
        return self._workers[-1]

    def _with_studies(self, units: Iterable[Unit]) -> Iterator[tuple[Group, _Studies]]:
        """Yield every unit as a group with its studies, made ready once for units that follow each other."""
        studies: _Studies = {}
        for unit in units:
            specs = {id(each.spec): each.spec for each in unit.members}
            studies = {key: studies.get(key) or _Study.of(spec, self._shelf) for key, spec in specs.items()}
            yield Group(unit.members), studies

    def _freed(self, worker: _Worker) -> int | None:
        """Take the group from a worker that has ended it, or has died; return the exit status of a dead one."""
        worker.group, status = None, worker.status()
        if worker.dead:
            self._remove(worker)
        return status


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


_Studies: TypeAlias = Mapping[int, _Study]
"""The studies of a group, by the identity of their specifications."""
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
