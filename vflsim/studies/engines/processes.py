"""Concurrent runs, each in its own process, so that a crash of one leaves the others alone."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Self

from vflsim.errors import DataError, ResultsError, ScenarioError, VflsimError
from vflsim.learning.data.shelf import SharedData, Shelf, can_share
from vflsim.scenario.data import ScenarioData
from vflsim.simulation.reporter import Progress
from vflsim.studies.engines.handover import death, mention_log, pickled, report_of_lost, stillborn, without_main_module
from vflsim.studies.engines.local import Reports, Unit
from vflsim.studies.engines.worker import Begun, Order, StudyOrder, Word, send_order, serve
from vflsim.studies.runs.interrupt import SIGNALS, Interrupt
from vflsim.studies.runs.progress import Report
from vflsim.studies.runs.spec import StudySpec

GRACE_S = 30.0
"""Seconds that workers have to end by themselves."""
_PAUSE_S = 1.0
_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables with the number of threads that PyTorch, NumPy and SciPy start when they are imported."""
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(slots=True, eq=False)
class _Member:
    """A worker process, this side's end of its pipe, and its current unit.

    ``spec`` is the study that it holds, ``data`` are the keys of the data sets that it has mapped; ``begun``: it has
    begun at least one run.
    """

    process: SpawnProcess
    link: Connection
    spec: StudySpec | None = None
    data: frozenset[str] = frozenset()
    unit: Unit | None = None
    since: float = 0.0
    latest: Progress | None = None
    begun: bool = False


class Crew:
    """Up to ``size`` worker processes, started on demand and reused.

    This process reads the data of a study, unless they are on the ``shelf`` already, and workers map its memory (on
    Linux; elsewhere each worker reads them by itself). Libraries have as many threads in a worker as a run has.

    Invariants: a worker executes at most one run; a run fails if its worker dies; no worker outlives the ``with`` block
    or the process that started it.
    """

    def __init__(self, size: int, shelf: Shelf | None = None) -> None:
        self._size, self._shelf = size, shelf
        self._members: list[_Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        """Take a unit whenever a worker is free; yield the reports in the order in which they end.

        Raises ResultsError if a run cannot be written, ScenarioError if workers cannot read a study, and RunError if
        workers cannot start. After an error, or if the iterator is closed early, all workers end.
        """
        left = self._with_studies(units)
        try:
            while True:
                interrupt.check()
                for unit, study in islice(left, self._size - len(self._busy())):
                    _send(self._free(unit.spec.options.execution.threads), unit, study)
                    unit.watcher.began(unit.run)
                if not self._busy():
                    break
                for member, unit in self._talking():
                    word = _heard(member)
                    if isinstance(word, Progress):
                        member.latest = word
                        unit.watcher.progressed(unit.run, word)
                    elif isinstance(word, Begun):
                        member.begun = True
                    else:
                        yield unit, self._ended(member, unit, word)
        finally:
            if self._busy():
                self.dismiss()

    def dismiss(self) -> None:
        """End all workers, and remove the logs of unfinished runs.

        A run under way may write a checkpoint first. Workers that have not begun a run are killed at once, others after
        ``GRACE_S`` or at a second interrupt.
        """
        members, self._members = self._members, []
        try:
            for member in members:
                with contextlib.suppress(OSError):
                    member.link.send(None)
                if not member.begun:  # it may still be importing PyTorch
                    member.process.kill()
            deadline = time.monotonic() + GRACE_S
            for member in members:
                member.process.join(max(0.0, deadline - time.monotonic()))
        finally:
            for member in members:
                member.process.kill()
                member.process.join()
                member.link.close()
                if (unit := member.unit) is not None:
                    with contextlib.suppress(OSError):
                        unit.spec.log_of(unit.run).unlink()

    def _busy(self) -> list[_Member]:
        return [member for member in self._members if member.unit is not None]

    def _free(self, threads: int) -> _Member:
        """Return an idle worker, or start one whose libraries have ``threads``: fewer than ``size`` are busy."""
        self._members = [member for member in self._members if member.unit is not None or member.process.is_alive()]
        for member in self._members:
            if member.unit is None:
                return member
        self._members.append(_started(threads))
        return self._members[-1]

    def _with_studies(self, units: Iterable[Unit]) -> Iterator[tuple[Unit, _Study]]:
        """Yield every unit with its study, made ready once for units that follow each other."""
        study: _Study | None = None
        for unit in units:
            if study is None or unit.spec is not study.spec:
                study = _Study(unit.spec, pickled(unit.spec), _shared(unit.spec, self._shelf))
            yield unit, study

    def _talking(self) -> list[tuple[_Member, Unit]]:
        """Wait briefly; return the workers that have sent a message or died, and their units."""
        ready = wait([each for member in self._busy() for each in (member.link, member.process.sentinel)], _PAUSE_S)
        return [
            (member, member.unit)
            for member in self._busy()
            if member.unit is not None and (member.link in ready or member.process.sentinel in ready)
        ]

    def _ended(self, member: _Member, unit: Unit, word: Report | VflsimError | None) -> Report:
        """Return the report of a unit from its worker's last message, None if the worker died without one."""
        seconds = time.monotonic() - member.since
        if isinstance(word, ResultsError | ScenarioError):
            raise word
        member.unit = None
        if word is None:
            self._members.remove(member)
            member.process.join()
            member.link.close()
            status = member.process.exitcode
            if not member.begun and status is not None and status >= 0:
                raise stillborn(status)
            word = death(status, member.latest)
        report = word if isinstance(word, Report) else report_of_lost(unit.spec, unit.run, word, seconds)
        if report.error is not None:
            mention_log(report.error, unit.spec.log_of(unit.run))
        return report


@dataclass(frozen=True, slots=True)
class _Study:
    """A study that is ready for workers: pickled, and its data in files, by dtype and each with its key."""

    spec: StudySpec
    pickled: bytes
    data: Mapping[str, tuple[str, SharedData]]


def _started(threads: int) -> _Member:
    """Start a worker. It inherits blocked signals and gets interrupts through its pipe."""
    ours, its = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=serve, args=(its,), daemon=True)
    resource_tracker.ensure_running()  # starting it later would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        with without_main_module(), _environment(dict.fromkeys(_POOLS, str(threads))):
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        its.close()
    return _Member(process, ours)


def _send(member: _Member, unit: Unit, study: _Study) -> None:
    order, files = None, dict[str, SharedData]()
    if member.spec is not unit.spec:
        files = {key: shared for key, shared in study.data.values() if key not in member.data}
        keys = {dtype: key for dtype, (key, _) in study.data.items()}
        order = StudyOrder(study.pickled, keys, {key: shared.outline for key, shared in files.items()})
        member.spec, member.data = unit.spec, frozenset(keys.values())
    member.unit, member.since, member.latest = unit, time.monotonic(), None
    with contextlib.suppress(OSError):  # a dead worker is noticed later
        descriptors = [shared.descriptor for shared in files.values()]
        send_order(member.link, Order(unit.run, unit.spec.log_of(unit.run), order), descriptors)


def _heard(member: _Member) -> Word | None:
    """Return the next message of a worker; None if it is dead."""
    try:
        word: Word | None = member.link.recv() if member.link.poll() else None
    except (EOFError, OSError):
        word = None
    return word


def _shared(spec: StudySpec, shelf: Shelf | None) -> dict[str, tuple[str, SharedData]]:
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


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables that processes started meanwhile inherit."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
