"""The options of execution, written once: command line, keywords in Python, ``run.json`` and checkpoints follow.

To add one: an entry of ``ExecutionOptions``, and a field of its name in ``RunOptions``, or in ``Execution`` if results
depend on it bit for bit. What depends on it reads the field.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict, Unpack, cast, get_args, get_type_hints

from vflsim.errors import ScenarioError
from vflsim.vocabulary.quantities import TIME, Quantity

DeviceWish: TypeAlias = Literal["auto", "cpu", "cuda"]
EngineName: TypeAlias = Literal["processes", "ray"]


@dataclass(frozen=True, slots=True)
class Option:
    """An option of execution: its default, its ``help``, and which numbers it takes, if it takes numbers.

    ``none`` says in words what it takes besides None, which is written ``off`` on the command line; ``word`` is a text
    that it takes besides numbers.
    """

    default: Any
    help: str
    metavar: str | None = None
    number: Quantity | None = None
    none: str = ""
    word: str | None = None

    def read(self, value: Any, name: str) -> Any:
        """Return the value that a user gives the option ``name``. Raises ValueError for one that is not allowed."""
        if value is None or (self.none and str(value).strip().casefold() == "off"):
            return None
        if value == self.word:
            return value
        if self.number is None:
            known = [each for each in get_args(OPTIONS[name][0]) if isinstance(each, str)]
            if known and value not in known:
                raise ValueError(f"unknown {name}; allowed: {', '.join(known)}")
            return value
        try:
            return self.number.convert(value, {})
        except ValueError as error:
            raise ValueError(f"{error}{self.none and '; '}{self.none}") from None


_COUNT = Quantity(at_least=1, at_most=1024, whole=True)
_AMOUNT = Quantity(at_least=0.0, at_most=1024)
_SECONDS = Quantity(TIME, above=0.0)
_TIMES = Quantity(at_least=0, at_most=1000, whole=True)


class ExecutionOptions(TypedDict, total=False):
    """Options for executing the runs of a study. Each option may be omitted: see ``DEFAULTS``.

    ``quick``: the first seed alone, for a first look, as a scenario named ``<name>-quick`` with a folder of its own.

    ``workers``: runs at a time, each in its own process; a script needs ``if __name__ == "__main__":`` around the call.
    ``resume``: refuse a folder with results of another scenario. ``anew``: use no earlier run.
    ``checkpoint_every``: wall-clock time between checkpoints, in seconds or such as ``"5 min"``; None or ``"off"`` for
    none. ``eager``: train client by client. ``device``, ``threads``, ``tf32``: where and how PyTorch computes; the last
    digits depend on ``threads``, and ``tf32`` lets a GPU round the factors of float32 products. ``together``: the most
    runs of a protocol that one process trains side by side, where it can; ``"auto"`` goes by memory and workers, None
    or ``"off"`` is one alone.
    ``engine``: ``"ray"`` executes runs on the Ray cluster at ``address`` (``"auto"``, ``"ray://host:port"``; None
    starts one here), each with ``num_cpus`` and ``num_gpus`` (None: one with ``device="cuda"``), and again up to
    ``max_retries`` times if its worker dies.

    Example: ``vflsim.run("quickstart", workers=2, checkpoint_every="5 min")``.
    """

    quick: Annotated[
        bool,
        Option(False, "A first look: one seed, in results/NAME-quick. One seed cannot order protocols."),
    ]
    workers: Annotated[int, Option(1, "Number of runs at a time, each in its own process.", "N", _COUNT)]
    resume: Annotated[bool, Option(False, "Keep finished runs and continue the others; refuse other scenarios.")]
    anew: Annotated[bool, Option(False, "Use no earlier run: compute all of them again.")]
    checkpoint_every: Annotated[
        str | float | None,
        Option(
            "60 s", "Wall-clock time between checkpoints of a run; off for none.", "TIME", _SECONDS,
            "a time such as 60 s or 5 min, or off",
        ),
    ]  # fmt: skip
    eager: Annotated[bool, Option(False, "Train clients one by one instead of batched.")]
    device: Annotated[DeviceWish, Option("auto", "Device of training; auto: cuda if available.")]
    threads: Annotated[int, Option(1, "PyTorch threads per run; the last digits depend on it.", "N", _COUNT)]
    tf32: Annotated[bool, Option(False, "Let a GPU round the factors of float32 products (TF32).")]
    together: Annotated[
        str | int | None,
        Option(
            "auto", "Runs of a protocol that a process trains side by side, at most; auto: by memory; off: one.", "N",
            _COUNT, "auto or off", "auto",
        ),
    ]  # fmt: skip
    engine: Annotated[
        EngineName,
        Option("processes", "What executes runs: processes of this machine, or a Ray cluster (vflsim\\[ray])."),
    ]
    address: Annotated[
        str | None, Option(None, "Ray's cluster: auto, or ray://host:10001 (default: one starts on this machine).")
    ]
    num_cpus: Annotated[float, Option(1.0, "CPUs of a run on Ray.", "N", _AMOUNT)]
    num_gpus: Annotated[float | None, Option(None, "GPUs of a run on Ray (default: 1 with cuda).", "N", _AMOUNT)]
    max_retries: Annotated[int, Option(3, "How often a run begins again if its Ray worker dies.", "N", _TIMES)]


_HINTS = {name: get_args(hint) for name, hint in get_type_hints(ExecutionOptions, include_extras=True).items()}
OPTIONS: Final[Mapping[str, tuple[Any, Option]]] = {name: (kind, option) for name, (kind, option) in _HINTS.items()}
"""The type and the rest of every option, by name."""
DEFAULTS: Final = cast("ExecutionOptions", {name: option.default for name, (_, option) in OPTIONS.items()})
"""The values of omitted options."""


def flag(name: str) -> str:
    """Write an option as on the command line."""
    return f"--{name.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Execution:
    """Execution settings of a run, outside the scenario, that affect results bit for bit.

    ``eager``: one module and one call per client, nothing batched. ``device``: of tensors, ``cpu`` or ``cuda``; coded
    runs stay on the CPU. ``tf32``: let a GPU round the factors of float32 products to TF32, which is faster but differs
    from a CPU. ``threads``: PyTorch threads of a run. Their number changes the last bits, so it is fixed and recorded,
    independent of the machine and of the number of workers.
    """

    eager: bool = False
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1
    tf32: bool = False

    @property
    def learning_plane(self) -> Literal["batched", "eager"]:
        """The name in run.json."""
        return "eager" if self.eager else "batched"

    def facts(self, device: str, training: bool) -> dict[str, Any]:
        """Return the fields of ``run.json``, for a run on a ``device``, with ``training`` or of timing alone."""
        plane = self.learning_plane if training else None
        named = {"device": device, "threads": self.threads, "tf32": self.tf32, "learning_plane": plane}
        return {**named, "execution": self._others(complete=False)}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Execution:
        """Read the fields of ``run.json``."""
        named = {name: facts[name] for name in ("device", "threads", "tf32")}
        return cls(eager=facts["learning_plane"] == "eager", **named, **facts["execution"])

    def words(self, device: str, training: bool = True) -> dict[str, str]:
        """Describe what a run has to agree on with another one for the same bits, by name."""
        plane = self.learning_plane if training else "none"
        named = {"device": device, "threads": self.threads, "tf32": self.tf32, "learning plane": plane}
        return {name: str(value) for name, value in (named | self._others(complete=True)).items()}

    def _others(self, complete: bool) -> dict[str, Any]:
        """Return the settings that have no name of their own in ``run.json``; unless ``complete``, the unusual ones."""
        others = [each for each in fields(self) if each.name not in ("eager", "device", "threads", "tf32")]
        values = {each.name: (getattr(self, each.name), each.default) for each in others}
        return {name: value for name, (value, usual) in values.items() if complete or value != usual}

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Configure PyTorch for this run; restore its settings afterwards."""
        import torch

        threads, matmul, cudnn = torch.get_num_threads(), torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark
        torch.set_num_threads(self.threads)
        matmul.allow_tf32 = cudnn.allow_tf32 = self.tf32
        cudnn.deterministic, cudnn.benchmark = True, False
        if self.device == "cuda":
            # A fixed workspace makes cuBLAS sum in the same order every time; cuBLAS reads it at first use.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = before


USUAL = Execution()
"""Batched, on the CPU, with one thread."""
RECORDED: Final = tuple(each.name for each in fields(Execution))
"""The options that results depend on bit for bit."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The Ray cluster that executes runs, and the resources that a run takes.

    ``address``: None starts one on this machine, ``auto`` uses the one that runs here, or ``ray://host:port``.
    ``num_gpus``: None is one for runs on a GPU. ``max_retries``: how often a run begins again if its worker dies.
    """

    address: str | None = None
    num_cpus: float = 1.0
    num_gpus: float | None = None
    max_retries: int = 3


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a study. Only ``execution`` affects what the runs compute, and on a GPU ``together``.

    ``workers``: number of runs at a time, each in its own process; 1 uses this process. ``resume``: refuse a folder
    with results of another scenario; ``anew``: use no earlier run. ``checkpoint_every``: seconds of wall-clock time,
    None for no checkpoints. ``cluster``: Ray executes the runs, without checkpoints. ``quick``: the scenario is to be
    that of a first look (``scenario.load.quickened``). ``together``: the most runs that one process trains side by
    side, None for one alone.
    """

    workers: int = 1
    resume: bool = False
    checkpoint_every: float | None = 60.0
    execution: Execution = USUAL
    anew: bool = False
    cluster: Cluster | None = None
    quick: bool = False
    together: int | Literal["auto"] | None = "auto"

    @classmethod
    def of(cls, **options: Unpack[ExecutionOptions]) -> RunOptions:
        """Read the options that a user gives. Raises ScenarioError with every invalid option, TypeError for others."""
        if unknown := options.keys() - OPTIONS.keys():
            raise TypeError(f"unexpected option {min(unknown)!r}; allowed: {', '.join(OPTIONS)}")
        values: dict[str, Any] = {**DEFAULTS, **options}
        problems: list[str] = []
        for name, (_, option) in OPTIONS.items():
            try:
                values[name] = option.read(values[name], name)
            except ValueError as error:
                problems.append(f"{flag(name)} {values[name]}: {error}")
        if values["resume"] and values["anew"]:
            problems.append("--resume --anew: one keeps the finished runs, the other does not; leave one out")
        cluster, on_ray = Cluster(**_of(Cluster, values)), values["engine"] == "ray"
        if on_ray:
            problems += _obstacles(values["workers"])
        elif cluster != Cluster() and not problems:
            problems.append("--address, --num-cpus, --num-gpus and --max-retries: add --engine ray, or leave them out")
        if problems:
            raise ScenarioError("\n  ".join(problems), remedy="vflsim run --help says what each option means")
        wish = values["device"]
        there = (on_ray and wish == "cuda") or (wish != "cpu" and cuda_available())
        execution = Execution(**(_of(Execution, values) | {"device": "cuda" if there else "cpu"}))
        return cls(**_of(cls, values), execution=execution, cluster=cluster if on_ray else None)


def _of(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: values[each.name] for each in fields(kind) if each.name in values}


def _obstacles(workers: int) -> Iterator[str]:
    """Yield why Ray cannot execute runs."""
    if find_spec("ray") is None:
        yield "--engine ray: Ray is not installed; install it: pip install 'vflsim[ray]'"
    if workers != 1:
        yield f"--workers {workers}: Ray starts the workers; with --engine ray give --num-cpus for each run"


def cuda_available() -> bool:
    """Return whether PyTorch can use a CUDA device."""
    import torch

    return torch.cuda.is_available()


def remark(wish: DeviceWish, options: RunOptions) -> str:
    """Return a note if the requested device is unavailable; else an empty text."""
    return "no CUDA device here: running on the CPU" if wish == "cuda" and options.execution.device == "cpu" else ""


DEFAULT_OPTIONS = RunOptions()
"""One run at a time in this process, batched, on the CPU with one thread."""
