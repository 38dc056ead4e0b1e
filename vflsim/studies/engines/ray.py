"""The engine of a Ray cluster: every unit is a task, and no disk is shared."""

import contextlib
import hashlib
import io
import logging
import os
import pickle
import signal
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count, islice
from typing import Any, Self

from vflsim.errors import ResultsError, RunError, ScenarioError, VflsimError
from vflsim.results.store.folder import RUN
from vflsim.results.store.pages import RunInfo
from vflsim.results.store.write import write_arrived
from vflsim.simulation.info import versions
from vflsim.studies.engines import Reports, Unit, singly
from vflsim.studies.engines.handover import not_handed_over, pickled, report_of_lost
from vflsim.studies.engines.ray_task import Luggage, execute
from vflsim.studies.runs.interrupt import SIGNALS, Interrupt
from vflsim.studies.runs.progress import Report
from vflsim.studies.runs.spec import StudySpec
from vflsim.vocabulary.execution_options import Cluster


class Board:
    """Keeps the latest news of every run by its number, pickled, until the study takes them."""

    def __init__(self) -> None:
        self._news: dict[int, bytes] = {}

    def tell(self, number: int, news: bytes) -> None:
        """Replace the news of a run."""
        self._news[number] = news

    def take(self) -> dict[int, bytes]:
        """Return the news since the last time."""
        news, self._news = self._news, {}
        return news


_PAUSE_S = 1.0
_LEAST_WAITING = 16
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Ray reports nothing about its use, and leaves the variables that name GPUs alone."""


@dataclass(slots=True, eq=False)
class _Task:
    """A unit on its way: its number on the board, when it was handed over, and whether it has begun."""

    unit: Unit
    number: int
    since: float = field(default_factory=time.monotonic)
    begun: bool = False

    def begin(self) -> None:
        """Tell the watcher once that the run has begun."""
        if not self.begun:
            self.begun = True
            self.unit.watcher.began(self.unit.run)


class RayEngine:
    """Executes units as tasks of a Ray cluster; it starts one on this machine if it has no address.

    Ray begins a run again, on another worker, if its worker or node dies. Runs write no checkpoints: one that is
    interrupted starts anew. Invariant: leaving the ``with`` block disconnects from the cluster, and ends one that was
    started here.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ray: Any = None
        self._ours = False
        self._parcels: dict[int, tuple[str, list[Any], StudySpec]] = {}

    def __enter__(self) -> Self:
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        with _handlers_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray repeats these warnings in its errors
            self._ray = import_module("ray")  # mypy need not find it
            if not self._ray.is_initialized():
                self._connect()
                self._ours = True
        try:
            self._must_have_room()
            self._board = self._ray.remote(num_cpus=0, max_restarts=-1)(Board).remote()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._parcels.clear()
        if self._ours:
            with _handlers_kept():
                self._ray.shutdown()
            self._ours = False

    def carry_out(self, units: Iterable[Unit], interrupt: Interrupt) -> Reports:
        """Take units as the cluster has room; yield their reports in the order in which they end.

        Raises ResultsError if a run cannot be written, ScenarioError if workers cannot read a study. After an error, or
        if the iterator is closed early, the other tasks are cancelled.
        """
        queue, numbers, waiting = singly(units), count(), dict[Any, _Task]()
        looked, room = time.monotonic(), self._room()
        try:
            while True:
                interrupt.check()
                for unit in islice(queue, max(0, room - len(waiting))):
                    task = _Task(unit, next(numbers))
                    waiting[self._submitted(task)] = task
                if not waiting:
                    return
                ended, _ = self._ray.wait(list(waiting), timeout=_PAUSE_S)
                if time.monotonic() >= looked + _PAUSE_S:
                    self._look(waiting.values())
                    looked, room = time.monotonic(), self._room()
                for reference in ended:
                    task = waiting.pop(reference)
                    task.begin()
                    yield task.unit, self._ended(task, reference)
        finally:
            for reference in waiting:
                with contextlib.suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(reference)

    def _connect(self) -> None:
        """Connect to the cluster, or start one. Raises ScenarioError if there is none."""
        address = self._cluster.address
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address is None:
                self._ray.init(address="local", include_dashboard=False, **quiet)
            else:
                self._ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError, ImportError) as error:
            why = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise ScenarioError(
                f"no Ray cluster answers: {why}",
                f"--address {address}",
                "auto, where `ray start` has run on this machine; ray://host:10001; without --address one starts here",
                "start a cluster, or mend the address",
            ) from error

    def _must_have_room(self) -> None:
        """Raise ScenarioError if no node of the cluster can ever execute a run."""
        wanted = {"CPU": self._cluster.num_cpus, "GPU": self._cluster.num_gpus or 0.0}
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if not any(all(node.get(what, 0.0) >= amount for what, amount in wanted.items()) for node in nodes):
            there = "; ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes)
            raise ScenarioError(
                f"no node has {wanted['CPU']:g} CPUs and {wanted['GPU']:g} GPUs for a run",
                "--num-cpus, --num-gpus",
                f"what a node has: {there or 'there is none'}",
                "ask for less, or start a larger node",
            )

    def _room(self) -> int:
        """Return how many units may be under way or wait: more than run at a time, so that a cluster can grow."""
        cpus = self._ray.cluster_resources().get("CPU", 0.0)
        return max(_LEAST_WAITING, int(2 * cpus / max(self._cluster.num_cpus, 0.1)))

    def _submitted(self, task: _Task) -> Any:
        """Hand a unit to the cluster; return Ray's reference to what it will give back."""
        spec, wish = task.unit.spec, self._cluster
        on_gpu = spec.device_of(task.unit.run.protocol) == "cuda"
        gpus = wish.num_gpus if wish.num_gpus is not None else float(on_gpu)
        digest, references = self._parcel(spec)
        remote = self._ray.remote(
            num_cpus=wish.num_cpus, num_gpus=gpus if on_gpu else 0, max_retries=wish.max_retries, retry_exceptions=False
        )(execute)
        return remote.remote(digest, references, task.unit.run, task.number, self._board)

    def _parcel(self, spec: StudySpec) -> tuple[str, list[Any]]:
        """Put a study and its files into the cluster's store, once. Raises ScenarioError if it cannot be pickled."""
        if id(spec) not in self._parcels:
            parcel = pickled(spec)
            references = [self._ray.put(parcel), self._ray.put(Luggage.of(spec.scenario))]
            self._parcels[id(spec)] = hashlib.sha256(parcel).hexdigest(), references, spec
        digest, references, _ = self._parcels[id(spec)]
        return digest, references

    def _look(self, tasks: Iterable[_Task]) -> None:
        """Pass on the news of the board. If its node is lost, there are none."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            news = self._ray.get(self._board.take.remote(), timeout=_PAUSE_S)
            for task in tasks:
                if task.number in news:
                    task.begin()
                    progress = pickle.loads(news[task.number])  # trusted: this study's own tasks wrote it
                    if progress is not None:
                        task.unit.watcher.progressed(task.unit.run, progress)

    def _ended(self, task: _Task, reference: Any) -> Report:
        """Write the files of a task that has ended; return its report."""
        unit = task.unit
        try:
            word, files = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # the worker lacks vflsim, or has another version of it
            raise not_handed_over(str(error).strip().splitlines()[-1]) from error
        except self._ray.exceptions.RayError as error:
            word, files = _lost(error, self._cluster.max_retries), {}
        if isinstance(word, ResultsError | ScenarioError):
            raise word
        if isinstance(word, VflsimError):
            return report_of_lost(unit.spec, unit.run, word, time.monotonic() - task.since)
        assert isinstance(word, Report), "a task gives a report or an error"
        inputs = unit.spec.identity(unit.run.protocol).inputs  # the worker has these files at other places
        info = RunInfo.model_validate_json(files[RUN]).model_copy(update={"inputs": inputs})
        files[RUN] = (info.model_dump_json(indent=2) + "\n").encode()
        write_arrived(unit.place, info, lambda name: io.BytesIO(files[name]))
        unit.spec.settle(unit.run.protocol, unit.run.seed)
        other = [f"{name} {info.versions.get(name)} (here {here})" for name, here in versions().items()
                 if info.versions.get(name) != here]  # fmt: skip
        return Report(info, word.last, "; ".join([word.note] * bool(word.note) + other), word.error)


def _lost(error: BaseException, retries: int) -> RunError:
    """Make the error of a run whose workers died too often."""
    what = f"its worker was lost, {retries + 1} times: {str(error).strip().splitlines()[0]}"
    return RunError(what, "Ray", remedy="a node short of memory kills workers: give a run more --num-cpus")


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Keep this process's signal handlers, which Ray would replace."""
    before = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # this is not the main thread
            for each, handler in before.items():
                signal.signal(each, handler)
