"""How processes start, what goes to them, and what is left of those that ended early: studies, results, errors."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.spawn import import_main_path
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
from joblib.externals.loky import process_executor

from vflsim.books import Counts
from vflsim.errors import ResultsError, RunError, ScenarioError, VflsimError
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.data.shelf import Outline
from vflsim.results.store.folder import errors_named
from vflsim.results.store.schema import EVENTS, RunTables, metrics_schema, rounds_schema
from vflsim.results.store.write import write_run
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.info import run_info
from vflsim.simulation.reporter import Progress
from vflsim.studies.runs.interrupt import SIGNALS, Interrupt
from vflsim.studies.runs.progress import Report, StudyRun
from vflsim.studies.runs.spec import StudySpec

_TAIL = 5


def executed(
    spec: StudySpec, run: StudyRun, data: ScenarioData, report: Callable[[Progress], None], interrupt: Interrupt
) -> Report | VflsimError:
    """Execute a run in another process; return its report, or the error of a run that could not start."""
    try:
        return spec.carry_out(run, data, report, interrupt)
    except VflsimError as error:
        traceback.print_exc()
        return error if isinstance(error, ResultsError | RunError) else RunError(*error.args)
    except Exception as error:
        traceback.print_exc()
        return RunError(f"{type(error).__name__}: {error}")


def report_of_lost(spec: StudySpec, run: StudyRun, error: VflsimError, seconds: float) -> Report:
    """Write a lost run as failed, with empty tables; return its report.

    An earlier run in the same folder stays. Raises ResultsError if the run cannot be written.
    """
    scenario, execution = spec.scenario, spec.options.execution
    info = run_info(
        scenario,
        run.protocol,
        run.seed,
        error,
        timing_only=spec.timing_only,
        path=spec.paths[run.protocol].path,
        **execution.facts(spec.device_of(run.protocol), not spec.timing_only),
        counts=Counts().of_run(events=0),
        wall_clock_s=seconds,
    )
    place = spec.address(run.protocol, run.seed)
    if not place.exists():
        tables = RunTables(metrics_schema(()).empty_table(), rounds_schema(()).empty_table(), EVENTS.empty_table())
        write_run(place, tables, {}, info, scenario.record.tables)
    return Report(info, {}, error=error)


def death(status: int | None, latest: Progress | None) -> RunError:
    """Make the error of a run whose process ended with ``status`` after its ``latest`` progress."""
    when = f"in round {latest.rounds:,} at {latest.time_s:.6g} s" if latest else "before its first round"
    where = f"its worker process, {when}"
    if status is None or status >= 0:
        return RunError(f"ended by itself, with status {status}", where)
    what, killed = f"was killed by {_signal_name(-status)}", -status == getattr(signal, "SIGKILL", None)
    return RunError(f"{what}: by a user, or by a system short of memory" if killed else what, where)


def not_handed_over(why: str) -> ScenarioError:
    """Make the error of a study that another process cannot read."""
    return ScenarioError(
        f"the scenario cannot be handed to another process: {why}",
        "--workers",
        "classes that can be imported or pickled: they hold no lock, open file or other handle of this process",
        "move the class into a module of its own; or use one worker",
    )


def mention_log(error: VflsimError, log: Path) -> None:
    """Add the path and the last lines of a run's log to its error; remove an empty log."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        if not lines:
            log.unlink()
    except OSError:
        return
    if lines:
        error.add_note("\n    ".join([f"its log is {log}, and ends:", *lines[-_TAIL:]]))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def pickled(study: object) -> bytes:
    """Pickle a study for a worker's ``pickle.loads``. Raises ScenarioError if it cannot be pickled.

    Classes and functions of the main module, and local ones, go by value: workers import no main module, and could
    import none of a prompt, a notebook or standard input. They are trusted: this process wrote them, and only its own
    workers read the bytes, through pipes that no other process holds. All else goes by name, as usual.
    """
    try:
        return bytes(cloudpickle.dumps(study))
    except Exception as error:
        if _main_is_a_file():  # pickle by name: the main module may use objects that cannot be pickled, such as a lock
            with suppress(Exception):  # the first error is more informative
                return pickle.dumps(_WithMain(study))
        raise not_handed_over(f"{type(error).__name__}: {error}") from error


class _WithMain:
    """A study that another process unpickles after it has imported the file of the main module."""

    def __init__(self, study: object) -> None:
        self._study = study

    def __reduce__(self) -> tuple[object, ...]:
        return _second, (_MainModule(), self._study)


class _MainModule:
    def __reduce__(self) -> tuple[object, ...]:
        return import_main_path, (sys.modules["__main__"].__file__,)


def _second(_: object, study: object) -> object:
    return study


def forking(imported: str) -> ForkServerContext | SpawnContext:
    """Return how processes start: forked from one that has ``imported`` a module, where that is possible.

    A new interpreter for each would import PyTorch once a process.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([imported])
    return context


@contextmanager
def without_main_module() -> Iterator[None]:
    """Keep processes that start now from importing the main module if that is no file: ``<stdin>``, for one."""
    main = sys.modules["__main__"]
    if main.__spec__ is None and not _main_is_a_file():
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _main_is_a_file() -> bool:
    return Path(getattr(sys.modules["__main__"], "__file__", None) or "").is_file()


# --- worker -----------------------------------------------------------------------------------------------------------


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
