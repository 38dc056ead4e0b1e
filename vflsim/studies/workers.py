"""Concurrent runs, each in its own process, so that a crash of one leaves the others alone."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TypeAlias

from vflsim.errors import ResultsError, ScenarioError, VflsimError
from vflsim.simulation.conductor import Progress
from vflsim.studies.handed import pickled, without_main_module
from vflsim.studies.interrupt import Interrupt
from vflsim.studies.lost import death, mention_log, report_of_lost, stillborn
from vflsim.studies.watching import Report, StudyRun, Watcher
from vflsim.studies.work import Work
from vflsim.studies.worker import Begun, Order, Word, serve

Reports: TypeAlias = Generator[tuple[StudyRun, Report], None, None]
GRACE_S = 30.0
"""Seconds that workers have to end by themselves."""
_PAUSE_S = 1.0
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(slots=True, eq=False)
class _Member:
    """A worker process, this side's end of its pipe, and its current run.

    ``work`` is the study that it holds; ``begun``: it has begun at least one run.
    """

    process: SpawnProcess
    link: Connection
    work: Work | None = None
    run: StudyRun | None = None
    since: float = 0.0
    latest: Progress | None = None
    begun: bool = False


class Crew:
    """Up to ``size`` worker processes, started on demand and reused.

    Invariants: a worker executes at most one run; a run fails if its worker dies; no worker outlives the ``with`` block
    or the process that started it.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._members: list[_Member] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()

    def carry_out(self, work: Work, runs: Sequence[StudyRun], watcher: Watcher, interrupt: Interrupt) -> Reports:
        """Start runs in the given order; yield their reports in the order in which they end.

        Raises ResultsError if a run cannot be written, ScenarioError if workers cannot read the study, and RunError if
        workers cannot start. After an error, or if the iterator is closed early, all workers end.
        """
        payload, waiting = pickled(work), deque(runs)
        try:
            while waiting or self._busy():
                interrupt.check()
                for member in self._free(len(waiting)):
                    _send(member, waiting[0], work, payload)
                    watcher.began(waiting.popleft())
                for member, run in self._talking():
                    word = _heard(member)
                    if isinstance(word, Progress):
                        member.latest = word
                        watcher.progressed(run, word)
                    elif isinstance(word, Begun):
                        member.begun = True
                    else:
                        yield run, self._ended(member, run, word)
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
                if member.work is not None and member.run is not None:
                    with contextlib.suppress(OSError):
                        member.work.log_of(member.run).unlink()

    def _busy(self) -> list[_Member]:
        return [member for member in self._members if member.run is not None]

    def _free(self, wanted: int) -> list[_Member]:
        """Return idle workers for up to ``wanted`` runs; start new ones within ``size``."""
        self._members = [member for member in self._members if member.run is not None or member.process.is_alive()]
        free = [member for member in self._members if member.run is None]
        for _ in range(min(wanted - len(free), self._size - len(self._members))):
            self._members.append(_started())
            free.append(self._members[-1])
        return free[:wanted]

    def _talking(self) -> list[tuple[_Member, StudyRun]]:
        """Wait briefly; return the workers that have sent a message or died, and their runs."""
        ready = wait([each for member in self._busy() for each in (member.link, member.process.sentinel)], _PAUSE_S)
        return [
            (member, member.run)
            for member in self._busy()
            if member.run is not None and (member.link in ready or member.process.sentinel in ready)
        ]

    def _ended(self, member: _Member, run: StudyRun, word: Report | VflsimError | None) -> Report:
        """Return the report of a run from its worker's last message, None if the worker died without one."""
        work, seconds = member.work, time.monotonic() - member.since
        assert work is not None
        if isinstance(word, ResultsError | ScenarioError):
            raise word
        member.run = None
        if word is None:
            self._members.remove(member)
            member.process.join()
            member.link.close()
            status = member.process.exitcode
            if not member.begun and status is not None and status >= 0:
                raise stillborn(status)
            word = death(status, member.latest)
        report = word if isinstance(word, Report) else report_of_lost(work, run, word, seconds)
        if report.error is not None:
            mention_log(report.error, work.log_of(run))
        return report


def _started() -> _Member:
    """Start a worker. It inherits a blocked SIGINT and gets interrupts through its pipe."""
    ours, its = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=serve, args=(its,), daemon=True)
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with without_main_module():
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        its.close()
    return _Member(process, ours)


def _send(member: _Member, run: StudyRun, work: Work, payload: bytes) -> None:
    order = Order(run, work.log_of(run), None if member.work is work else payload)
    member.work, member.run, member.since, member.latest = work, run, time.monotonic(), None
    with contextlib.suppress(OSError):  # a dead worker is noticed later
        member.link.send(order)


def _heard(member: _Member) -> Word | None:
    """Return the next message of a worker; None if it is dead."""
    try:
        word: Word | None = member.link.recv() if member.link.poll() else None
    except (EOFError, OSError):
        word = None
    return word
