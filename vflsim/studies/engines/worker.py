"""What happens in a worker process: it executes one run after the other, and ends with the process that started it."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from joblib.externals.loky import process_executor

from vflsim.errors import ResultsError, ScenarioError, VflsimError
from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.data.shelf import Outline
from vflsim.results.store.write import errors_named
from vflsim.scenario.data import ScenarioData
from vflsim.simulation.reporter import Progress
from vflsim.studies.engines.handover import executed, not_handed_over
from vflsim.studies.runs.interrupt import SIGNALS, Interrupt
from vflsim.studies.runs.progress import Report, StudyRun
from vflsim.studies.runs.spec import StudySpec


@dataclass(frozen=True, slots=True)
class Parcel:
    """A study for workers: its ``number``, its pickle, and by dtype the outline and the file of each data set.

    A worker reads data that it is not given by itself.
    """

    number: int
    study: bytes
    data: Mapping[str, tuple[Outline, str]]


_interrupt = Interrupt()
_links: list[Connection[Progress | None, Any]] = []
"""This side's end of the pipe to the process that started this one."""
_held: list[tuple[int, StudySpec, ScenarioData]] = []
"""The latest study: the runs of a study follow each other."""


def begin(link: Connection[Progress | None, Any]) -> None:
    """Make this process a worker: a message through the pipe ends the run under way, and its end this process."""
    for each in SIGNALS:  # sent to the whole process group; the parent decides when a worker ends
        signal.signal(each, signal.SIG_IGN)
    process_executor._USE_PSUTIL = False  # loky would end a worker whose data need more memory than those before
    _links[:] = [link]
    threading.Thread(target=_listen, args=(link,), daemon=True).start()


def _listen(link: Connection[Any, Any]) -> None:
    try:
        while True:
            link.recv()
            _interrupt.wish()
    finally:
        os._exit(1)  # the pipe is closed; half-written files have temporary names


def execute(parcel: Parcel, run: StudyRun, log: Path) -> Report | VflsimError:
    """Execute a run; return its report or its error.

    A ResultsError and a ScenarioError end the whole study: all its runs would fail alike.
    """
    try:
        with _printing_to(log):
            spec, data = _study(parcel)
            _links[0].send(None)
            return executed(spec, run, data, _report, _interrupt)
    except (ResultsError, ScenarioError) as error:
        return error


def _study(parcel: Parcel) -> tuple[StudySpec, ScenarioData]:
    """Return a study and its data. Raises ScenarioError if it cannot be read: all its runs would fail alike."""
    if not _held or _held[0][0] != parcel.number:
        _held.clear()
        try:
            spec: StudySpec = pickle.loads(parcel.study)  # trusted: the parent process sent it over its pipe
        except Exception as error:
            raise not_handed_over(str(error)) from error
        _held.append((parcel.number, spec, ScenarioData(spec.scenario, held=_mapped(parcel))))
    return _held[0][1:]


def _mapped(parcel: Parcel) -> dict[str, LoadedData]:
    """Map the data sets of a study; none where this system does not show the files of another process."""
    mapped: dict[str, LoadedData] = {}
    for dtype, (outline, path) in parcel.data.items():
        with contextlib.suppress(OSError), open(path, "rb") as file:
            mapped[dtype] = outline.mapped(file.fileno())
    return mapped


def _report(progress: Progress) -> None:
    _interrupt.check()
    _links[0].send(progress)


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
