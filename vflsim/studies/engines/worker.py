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
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias

import cloudpickle

from vflsim.errors import ResultsError, RunError, VflsimError
from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.data.shelf import Outline
from vflsim.results.store.write import errors_named
from vflsim.scenario.data import ScenarioData
from vflsim.simulation.reporter import Progress
from vflsim.studies.engines.handover import not_handed_over
from vflsim.studies.runs.interrupt import SIGNALS, Interrupt
from vflsim.studies.runs.progress import Report, StudyRun
from vflsim.studies.runs.spec import StudySpec


@dataclass(frozen=True, slots=True)
class StudyOrder:
    """A study that is handed to a worker: pickled, and its data sets by dtype, each by its key.

    ``outlines`` are those of the data sets that the worker does not hold yet, by key; their files follow through the
    pipe in this order. A worker reads data that it is not given by itself.
    """

    spec: bytes
    data: Mapping[str, str] = field(default_factory=dict)
    outlines: Mapping[str, Outline] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Order:
    """One run to execute. ``study``: None is the study of the previous order."""

    run: StudyRun
    log: Path
    study: StudyOrder | None


class Begun:
    """A worker's confirmation that it has read its order."""


Word = Begun | Progress | Report | VflsimError
"""A worker's message. An error replaces the report of a run that could not start (ResultsError: no run could)."""
_Received: TypeAlias = tuple[Order | None, list[int]]
"""An order with the descriptors of its files."""


def send_order(link: Connection[Order | None, Word], order: Order, files: Sequence[int]) -> None:
    """Send an order, and the descriptors of its study's files. Raises OSError."""
    link.send(order)
    if files:
        with _socket_of(link) as channel:
            socket.send_fds(channel, [b"f"], files)


def _received(link: Connection[Word, Order | None]) -> _Received:
    """Wait for an order and its files. Raises EOFError and OSError when the pipe closes."""
    order = link.recv()
    count = len(order.study.outlines) if order is not None and order.study is not None else 0
    if not count:
        return order, []
    with _socket_of(link) as channel:
        _, files, _, _ = socket.recv_fds(channel, 1, count)
    return order, files


@contextlib.contextmanager
def _socket_of(link: Connection[Any, Any]) -> Iterator[socket.socket]:
    """The socket beneath a pipe, which alone can pass files."""
    with socket.socket(fileno=os.dup(link.fileno())) as channel:
        channel.setblocking(True)  # whatever socket.setdefaulttimeout says
        yield channel


def serve(link: Connection) -> None:
    """Execute orders until None arrives or the pipe closes; then end the process."""
    for each in SIGNALS:  # sent to the whole process group; the parent decides when a worker ends
        signal.signal(each, signal.SIG_IGN)
    orders: SimpleQueue[_Received] = SimpleQueue()
    interrupt = Interrupt()
    threading.Thread(target=_listen, args=(link, orders, interrupt), daemon=True).start()
    worker = _Worker(link, interrupt)
    while True:
        order, files = orders.get()
        if order is None:
            break
        try:
            with _printing_to(order.log):
                word = worker.result(order, files)
        except ResultsError as error:
            word = error
        except KeyboardInterrupt:
            break
        link.send_bytes(cloudpickle.dumps(word))  # an error's class may be one of the main module, handed by value
    os._exit(0)  # a regular interpreter shutdown with PyTorch takes seconds


def _listen(link: Connection[Word, Order | None], orders: SimpleQueue[_Received], interrupt: Interrupt) -> None:
    """Pass orders on; the last one also ends the run under way."""
    try:
        while (received := _received(link))[0] is not None:
            orders.put(received)
        interrupt.wish()
        orders.put((None, []))
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
        self._mapped: dict[str, LoadedData] = {}  # by key

    def result(self, order: Order, files: Sequence[int]) -> Report | VflsimError:
        """Execute an order, whose data are in ``files``; return its report or error."""
        if order.study is not None:
            self._map(order.study, files)
            try:
                spec: StudySpec = pickle.loads(order.study.spec)  # trusted: the parent process sent it over its pipe
            except Exception as error:
                return not_handed_over(str(error))
            held = {dtype: self._mapped[key] for dtype, key in order.study.data.items()}
            self._held = spec, ScenarioData(spec.scenario, held=held)
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

    def _map(self, study: StudyOrder, files: Sequence[int]) -> None:
        """Map the data sets of a study that are new here; let go of those that it does not need."""
        self._held = None
        for (key, outline), file in zip(study.outlines.items(), files, strict=True):
            self._mapped[key] = outline.mapped(file)
            os.close(file)
        self._mapped = {key: self._mapped[key] for key in study.data.values()}

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
