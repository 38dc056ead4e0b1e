"""Commands of vflsim as processes that strike themselves at a drawn moment, for kills.py and faults.py.

Processes are forks of one that has imported everything, so that each costs what its study costs. Checkpoints are made
after so many events of a run, not by the clock.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

EVERY_EVENTS, EVERY_STEPS = 30, 5
"""World events, or steps of a program, between two checkpoints of a run: it then has a handful."""
TALLY, MARK = "tally", "struck"
CONTEXT = multiprocessing.get_context("forkserver")


@dataclass
class Places:
    """Where things are: the folder of a study and of its shards, a plan of its units, and the scenario."""

    folder: Path
    words: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        names = {"OUT": "out", "SHARDS": "shards", "UNITS": "units.jsonl", "SCENARIO": "scenario.yaml"}
        self.words = {word: str(self.folder / name) for word, name in names.items()}

    @property
    def out(self) -> Path:
        """The folder of the study."""
        return Path(self.words["OUT"])

    def argv(self, command: Sequence[str]) -> list[str]:
        """Put paths in the place of words."""
        return [self.words.get(word, word) for word in command]


@dataclass(frozen=True)
class Blow:
    """What happens at the ``count``-th change of a file, computation, or word from a worker; ``folder`` is removed.

    ``worker file`` and ``worker computation`` are those of a worker: the first one that gets there is struck.
    """

    at: str
    count: int
    what: str = "kill"
    folder: str = ""


# --- in the process that is killed ----------------------------------------------------------------------------------


def _struck(argv: list[str], errors: str, blow: Blow | None, tally: str) -> None:
    """Be ``vflsim`` with these arguments, struck by a blow; count changes of files and computations in ``tally``."""
    with open(f"{errors}.out", "w") as said, open(errors, "w") as file:
        os.dup2(said.fileno(), 1)
        os.dup2(file.fileno(), 2)
    from vflsim.cli import main
    from vflsim.studies.engines import processes as workers

    counts, words = _counting(os.path.dirname(tally), blow), workers._Worker.words

    def listened(worker: workers._Worker) -> Iterator[tuple[int, Any]]:
        for word in words(worker):
            counts.add("word")
            yield word

    workers._Worker.words = listened  # type: ignore[method-assign]
    workers._CONTEXT = CONTEXT
    nested()
    workers.begin = partial(_begin, os.path.dirname(tally), blow)  # type: ignore[assignment]
    sys.argv = ["vflsim", *argv]
    try:
        main()
    finally:
        Path(tally).write_text(json.dumps(counts.so_far))


def _begin(folder: str, blow: Blow | None, link: Connection) -> None:
    """Be a worker, struck by a blow if it is the first one that gets there."""
    from vflsim.studies.engines.handover import begin

    _counting(folder, blow, "worker ")
    begin(link)


class _Counts:
    """Changes of files, computations and words of a process so far; it strikes, if no other one has been struck."""

    def __init__(self, folder: str, blow: Blow | None, who: str) -> None:
        self.so_far = {"file": 0, "computation": 0, "word": 0}
        self._blow, self._who, self._mark = blow, who, f"{folder}/{MARK}"

    def add(self, what: str) -> None:
        self.so_far[what] += 1
        if self._blow is not None and (self._blow.at, self._blow.count) == (self._who + what, self.so_far[what]):
            with suppress(FileExistsError):
                open(self._mark, "x").close()
                _strike(self._blow)


def _counting(folder: str, blow: Blow | None, who: str = "") -> _Counts:
    """Count what this process does from now on; let it write checkpoints after so many events."""
    from vflsim.learning.execution.deferred_executor import DeferredExecutor
    from vflsim.learning.programs.lockstep import SumProgram
    from vflsim.learning.programs.own_pace import OwnPaceProgram
    from vflsim.simulation.checkpoints import Keeper

    counts, submit, steps = _Counts(folder, blow, who), DeferredExecutor.submit, Counter[Keeper]()

    def audit(event: str, args: tuple[object, ...]) -> None:
        writes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir") or (
            event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if writes and str(args[0]).startswith(folder) and os.path.basename(str(args[0])) not in (TALLY, MARK):
            counts.add("file")

    def submitted(executor: DeferredExecutor, operation: object) -> None:
        counts.add("computation")
        submit(executor, operation)  # type: ignore[arg-type]

    def counting(program: type[Any]) -> None:
        play = program.play

        def played(its: Any) -> None:
            counts.add("computation")
            play(its)

        program.play = played

    def planned(keeper: Keeper) -> None:
        if keeper._course is not None:
            world = keeper._course.world
            world.visit(keeper._visit, world.events + EVERY_EVENTS)

    def due(keeper: Keeper) -> bool:
        steps[keeper] += 1
        return keeper._wanted or steps[keeper] % EVERY_STEPS == 0

    for program in SumProgram, OwnPaceProgram:
        counting(program)
    Keeper._plan = planned  # type: ignore[method-assign]
    Keeper.due = property(due)  # type: ignore[method-assign, assignment]
    DeferredExecutor.submit = submitted  # type: ignore[method-assign, assignment]
    sys.addaudithook(audit)
    return counts


def _strike(blow: Blow) -> None:
    match blow.what:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "remove folder":
            shutil.rmtree(blow.folder)


def started(places: Places, command: Sequence[str], blow: Blow | None = None) -> BaseProcess:
    """Start a command in a process of its own."""
    tally, errors = (str(places.folder / name) for name in (TALLY, "errors"))
    (places.folder / MARK).unlink(missing_ok=True)
    process = CONTEXT.Process(target=_struck, args=(places.argv(command), errors, blow, tally))
    process.start()
    return process


def ended(places: Places, command: Sequence[str], blow: Blow | None = None) -> tuple[int, str]:
    """The exit status of a command, and its last words."""
    process = started(places, command, blow)
    process.join()
    assert process.exitcode is not None
    return process.exitcode, (places.folder / "errors").read_text()


def done(places: Places, command: Sequence[str], blow: Blow | None = None) -> None:
    """Carry out a command that must succeed."""
    status, words = ended(places, command, blow)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}: {words}")


def files_in(out: Path) -> dict[str, bytes]:
    """Every file but hidden ones and those of earlier scenarios, by path.

    Pages are without wall-clock times, how many runs trained together, and digests of such pages.
    """
    found = {str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file()}
    shown = {name: path for name, path in found.items() if "/." not in f"/{name}" and "earlier/" not in name}
    files = {name: path.read_bytes() for name, path in shown.items()}
    for name, content in files.items():
        if name.endswith("run.json"):
            files[name] = json.dumps(json.loads(content) | {"wall_clock_s": 0, "together": 0}).encode()
        if name.endswith("manifest.json"):
            files[name] = json.dumps(sorted(json.loads(content)["files"])).encode()
    return files


def trouble(out: Path, wanted: dict[str, bytes]) -> list[str]:
    """What is wrong with a folder: files that differ, and what ``vflsim verify`` finds."""
    from vflsim.results.verify import verify_folder

    files = files_in(out)
    others = sorted(name for name in files.keys() | wanted.keys() if files.get(name) != wanted.get(name))
    return [*others[:3], *verify_folder(out)[:3]]


@contextmanager
def fresh(scenario: dict[str, Any]) -> Iterator[Places]:
    """A new folder with a scenario and a plan of its units."""
    with tempfile.TemporaryDirectory(prefix="vflsim-kills-", ignore_cleanup_errors=True) as folder:
        places = Places(Path(folder))
        YAML().dump(scenario, Path(places.words["SCENARIO"]))
        yield places


def planned(places: Places) -> None:
    """Write the file of units that shards are of."""
    done(places, ("plan", "SCENARIO"))
    (places.folder / "errors.out").rename(places.words["UNITS"])


def preload() -> None:
    """Let processes begin as forks of one that has imported everything."""
    everything = ["studies.study", "studies.worker", "studies.rerun", "cli.app", "cli.runs", "terminal"]
    CONTEXT.set_forkserver_preload([*(f"vflsim.{each}" for each in everything), "torch._dynamo", "sklearn.datasets"])


def nested() -> None:
    """Let the processes of this one begin as forks, too, of the same process that has imported everything."""
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[attr-defined]
