"""Study options: workers or a cluster, resume, checkpoints, device (``RunOptions``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Unpack

from vflsim.errors import ScenarioError
from vflsim.simulation.execution import USUAL, Execution
from vflsim.vocabulary.execution_options import DEFAULTS, DeviceWish, ExecutionOptions
from vflsim.vocabulary.quantities import TIME, Quantity

_SECONDS = Quantity(TIME, above=0.0)
_COUNT = Quantity(at_least=1, at_most=1024, whole=True)
_AMOUNT = Quantity(at_least=0.0, at_most=1024)
_TIMES = Quantity(at_least=0, at_most=1000, whole=True)


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
    """Options of a study. Only ``execution`` affects what the runs compute.

    ``workers``: number of runs at a time, each in its own process; 1 uses this process. ``resume``: refuse a folder
    with results of another scenario; ``anew``: keep no earlier run. ``checkpoint_every``: seconds of wall-clock time,
    None for no checkpoints. ``cluster``: Ray executes the runs, without checkpoints.
    """

    workers: int = 1
    resume: bool = False
    checkpoint_every: float | None = 60.0
    execution: Execution = USUAL
    anew: bool = False
    cluster: Cluster | None = None

    @classmethod
    def of(cls, **given: Unpack[ExecutionOptions]) -> RunOptions:
        """Read the options that a user gives. Raises ScenarioError with every invalid option, TypeError for others."""
        if unknown := given.keys() - DEFAULTS.keys():
            raise TypeError(f"unexpected option {min(unknown)!r}; allowed: {', '.join(DEFAULTS)}")
        all_: ExecutionOptions = {**DEFAULTS, **given}
        workers, device, engine = all_["workers"], all_["device"], all_["engine"]
        resume, anew, checkpoint_every = all_["resume"], all_["anew"], all_["checkpoint_every"]
        problems: list[str] = []

        def read(option: str, quantity: Quantity, value: object) -> float:
            try:
                return quantity.convert(value, {})
            except ValueError as error:
                problems.append(f"--{option} {value}: {error}")
                return 1

        count, fixed = read("workers", _COUNT, workers), read("threads", _COUNT, all_["threads"])
        off = checkpoint_every is None or str(checkpoint_every).strip().casefold() == "off"
        known = len(problems)
        every = None if off else read("checkpoint-every", _SECONDS, checkpoint_every)
        if len(problems) > known:
            problems[-1] += "; a time such as 60 s or 5 min, or off"
        if resume and anew:
            problems.append("--resume --anew: one keeps the finished runs, the other does not; leave one out")
        if device not in ("auto", "cpu", "cuda"):
            problems.append(f"--device {device}: unknown device; allowed: auto, cpu, cuda")
        cluster = Cluster(
            all_["address"],
            read("num-cpus", _AMOUNT, all_["num_cpus"]),
            None if all_["num_gpus"] is None else read("num-gpus", _AMOUNT, all_["num_gpus"]),
            int(read("max-retries", _TIMES, all_["max_retries"])),
        )
        if engine == "ray":
            problems += _obstacles(workers)
        elif engine != "processes":
            problems.append(f"--engine {engine}: unknown engine; allowed: processes, ray")
        elif cluster != Cluster():
            problems.append("--address, --num-cpus, --num-gpus and --max-retries: add --engine ray, or leave them out")
        if problems:
            raise ScenarioError("\n  ".join(problems), remedy="vflsim run --help says what each option means")
        there = (engine == "ray" and device == "cuda") or (device != "cpu" and cuda_available())
        execution = Execution(all_["eager"], "cuda" if there else "cpu", int(fixed), all_["tf32"])
        return cls(int(count), resume, every, execution, anew, cluster if engine == "ray" else None)


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
