"""A worker process: it executes ordered runs, one after the other, until the process that ordered them ends.

A worker gets all its input through a pipe, and ends when the pipe closes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

import cloudpickle

from vflsim.errors import ResultsError, RunError, VflsimError
from vflsim.results.store.write import errors_named
from vflsim.scenario.data import ScenarioData
from vflsim.simulation.conductor import Progress
from vflsim.studies.engines.crashed import not_handed_over
from vflsim.studies.runs.interrupt import SIGNALS, Interrupt
from vflsim.studies.runs.progress import Report, StudyRun
from vflsim.studies.runs.spec import StudySpec


@dataclass(frozen=True, slots=True)
class Order:
    """One run to execute. ``spec`` is its pickled study; None: the study of the previous order."""

    run: StudyRun
    log: Path
    spec: bytes | None


class Begun:
    """A worker's confirmation that it has read its order and loaded the data."""


Word = Begun | Progress | Report | VflsimError
"""A worker's message. An error replaces the report of a run that could not start (ResultsError: no run could)."""


def serve(link: Connection) -> None:
    """Execute orders until None arrives or the pipe closes; then end the process."""
    for each in SIGNALS:  # sent to the whole process group; the parent decides when a worker ends
        signal.signal(each, signal.SIG_IGN)
    orders: SimpleQueue[Order | None] = SimpleQueue()
    interrupt = Interrupt()
    threading.Thread(target=_listen, args=(link, orders, interrupt), daemon=True).start()
    worker = _Worker(link, interrupt)
    while (order := orders.get()) is not None:
        try:
            with _printing_to(order.log):
                word = worker.result(order)
        except ResultsError as error:
            word = error
        except KeyboardInterrupt:
            break
        link.send_bytes(cloudpickle.dumps(word))  # an error's class may be one of the main module, handed by value
    os._exit(0)  # a regular interpreter shutdown with PyTorch takes seconds


def _listen(link: Connection[Word, Order | None], orders: SimpleQueue[Order | None], interrupt: Interrupt) -> None:
    """Pass orders on; the last one also ends the run under way."""
    try:
        while (order := link.recv()) is not None:
            orders.put(order)
        interrupt.wish()
        orders.put(None)
        link.recv()
    finally:
        os._exit(1)  # the pipe is closed; half-written files have temporary names


class _Worker:
    """Keeps a study and its data between orders.

    An unreadable study gives a ScenarioError, which ends the whole study: all its runs would fail alike.
    """

    def __init__(self, link: Connection[Word, Order | None], interrupt: Interrupt) -> None:
        self._link, self._interrupt = link, interrupt
        self._held: tuple[StudySpec, ScenarioData] | None = None

    def result(self, order: Order) -> Report | VflsimError:
        """Execute an order; return its report or error."""
        if order.spec is not None:
            try:
                spec: StudySpec = pickle.loads(order.spec)  # trusted: the parent process sent it over its own pipe
            except Exception as error:
                return not_handed_over(str(error))
            self._held = spec, ScenarioData(spec.scenario)
        assert self._held is not None, "the first order brings its study"
        spec, data = self._held
        try:
            self._link.send(Begun())
            return spec.carry_out(order.run, data, self._report, self._interrupt)
        except VflsimError as error:
            traceback.print_exc()
            return error if isinstance(error, ResultsError | RunError) else RunError(*error.args)
        except Exception as error:
            traceback.print_exc()
            return RunError(f"{type(error).__name__}: {error}")

    def _report(self, progress: Progress) -> None:
        self._interrupt.check()
        self._link.send(progress)


@contextlib.contextmanager
def _printing_to(log: Path) -> Iterator[None]:
    """Redirect all output of this process to a file, including output of C code and crash dumps."""
    with contextlib.ExitStack() as stack:
        with errors_named(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open(log, "w", encoding="utf-8"))
        for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
            if isinstance(stream, io.TextIOWrapper):  # so that a crash loses no line
                stream.reconfigure(line_buffering=True, errors="backslashreplace")
            os.dup2(file.fileno(), number)
        faulthandler.enable()
        yield
        sys.stdout.flush()
