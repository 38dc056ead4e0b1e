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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
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
from vflsim.studies.runs.group import Member, carry_out
from vflsim.studies.runs.interrupt import SIGNALS, Interrupt
from vflsim.studies.runs.progress import Report, StudyRun
from vflsim.studies.runs.spec import StudySpec

_TAIL = 5


def executed(
    members: Sequence[Member], data: ScenarioData, interrupt: Interrupt
) -> Iterator[tuple[int, Report | VflsimError]]:
    """Execute runs in another process; yield position and report of each, or the error of one that could not go on."""
    left = {*range(len(members))}
    try:
        for position, report in carry_out(members, data, interrupt):
            left.remove(position)
            yield position, report
        return
    except VflsimError as error:
        traceback.print_exc()
        word = error if isinstance(error, ResultsError | RunError) else RunError(*error.args)
    except Exception as error:
        traceback.print_exc()
        word = RunError(f"{type(error).__name__}: {error}")
    for position in left:
        yield position, word


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
_links: list[Connection[tuple[int, Progress] | None, Any]] = []
"""This side's end of the pipe to the process that started this one."""
_held: dict[int, tuple[StudySpec, ScenarioData]] = {}
"""The studies of the latest group, by number: their runs follow each other."""


def begin(link: Connection[tuple[int, Progress] | None, Any]) -> None:
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


def execute(parcels: Sequence[Parcel], runs: Sequence[StudyRun], logs: Sequence[Path]) -> VflsimError | None:
    """Execute runs together, each of its parcel's study; send position and report, or error, once each is written.

    Return a ResultsError or a ScenarioError, which ends the whole study: all its runs would fail alike.
    """
    try:
        with _printing_to(logs):
            for number in _held.keys() - {parcel.number for parcel in parcels}:
                del _held[number]
            studies = [_study(parcel) for parcel in parcels]
            _links[0].send(None)
            members = [
                Member(spec, run, partial(_report, position))
                for position, ((spec, _), run) in enumerate(zip(studies, runs, strict=True))
            ]
            for word in executed(members, studies[0][1], _interrupt):
                _links[0].send_bytes(cloudpickle.dumps(word))  # an error's class may go by value: see ``pickled``
    except (ResultsError, ScenarioError) as error:
        return error
    return None


def _study(parcel: Parcel) -> tuple[StudySpec, ScenarioData]:
    """Return a study and its data. Raises ScenarioError if it cannot be read: all its runs would fail alike."""
    if parcel.number not in _held:
        try:
            spec: StudySpec = pickle.loads(parcel.study)  # trusted: the parent process sent it over its pipe
        except Exception as error:
            raise not_handed_over(str(error)) from error
        _held[parcel.number] = spec, ScenarioData(spec.scenario, held=_mapped(parcel))
    return _held[parcel.number]


def _mapped(parcel: Parcel) -> dict[str, LoadedData]:
    """Map the data sets of a study; none where this system does not show the files of another process."""
    mapped: dict[str, LoadedData] = {}
    for dtype, (outline, path) in parcel.data.items():
        with contextlib.suppress(OSError), open(path, "rb") as file:
            mapped[dtype] = outline.mapped(file.fileno())
    return mapped


def _report(position: int, progress: Progress) -> None:
    _interrupt.check()
    _links[0].send((position, progress))


@contextlib.contextmanager
def _printing_to(logs: Sequence[Path]) -> Iterator[None]:
    """Redirect all output of this process to a file with several names, with that of C code and crash dumps."""
    with contextlib.ExitStack() as stack:
        for log in logs:
            with errors_named(log):
                log.parent.mkdir(parents=True, exist_ok=True)
                log.unlink(missing_ok=True)
                if log is logs[0]:
                    file = stack.enter_context(open(log, "w", encoding="utf-8"))
                else:
                    with suppress(OSError):  # a disk without links: the first run's log has it all
                        os.link(logs[0], log)
        for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
            if isinstance(stream, io.TextIOWrapper):  # so that a crash loses no line
                stream.reconfigure(line_buffering=True, errors="backslashreplace")
            os.dup2(file.fileno(), number)
        faulthandler.enable()
        yield
        sys.stdout.flush()
