"""Study options: workers, resume, checkpoints, device (``RunOptions``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vflsim.errors import ScenarioError
from vflsim.simulation.execution import USUAL, Execution
from vflsim.vocabulary.quantities import TIME, Quantity

DeviceWish = Literal["auto", "cpu", "cuda"]
CHECKPOINT_EVERY = "60 s"
"""Default wall-clock time between checkpoints."""

_SECONDS = Quantity(TIME, above=0.0)
_COUNT = Quantity(at_least=1, at_most=1024, whole=True)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a study. Only ``execution`` affects what the runs compute.

    ``workers``: number of runs at a time, each in its own process; 1 uses this process. ``resume``: refuse a folder
    with results of another scenario; ``anew``: keep no earlier run. ``checkpoint_every``: seconds of wall-clock time,
    None for no checkpoints.
    """

    workers: int = 1
    resume: bool = False
    checkpoint_every: float | None = 60.0
    execution: Execution = USUAL
    anew: bool = False

    @classmethod
    def of(
        cls,
        *,
        workers: int = 1,
        resume: bool = False,
        checkpoint_every: str | float | None = CHECKPOINT_EVERY,
        eager: bool = False,
        device: DeviceWish = "auto",
        threads: int = 1,
        tf32: bool = False,
        anew: bool = False,
    ) -> RunOptions:
        """Read the options that a user gives. Raises ScenarioError with every invalid option."""
        problems: list[str] = []

        def read(option: str, quantity: Quantity, value: object) -> float:
            try:
                return quantity.convert(value, {})
            except ValueError as error:
                problems.append(f"--{option} {value}: {error}")
                return 1

        count, fixed = read("workers", _COUNT, workers), read("threads", _COUNT, threads)
        off = checkpoint_every is None or str(checkpoint_every).strip().casefold() == "off"
        known = len(problems)
        every = None if off else read("checkpoint-every", _SECONDS, checkpoint_every)
        if len(problems) > known:
            problems[-1] += "; a time such as 60 s or 5 min, or off"
        if resume and anew:
            problems.append("--resume --anew: one keeps the finished runs, the other does not; leave one out")
        if device not in ("auto", "cpu", "cuda"):
            problems.append(f"--device {device}: unknown device; allowed: auto, cpu, cuda")
        if problems:
            raise ScenarioError("\n  ".join(problems), remedy="vflsim run --help says what each option means")
        resolved: Literal["cpu", "cuda"] = "cuda" if device != "cpu" and cuda_available() else "cpu"
        return cls(int(count), resume, every, Execution(eager, resolved, int(fixed), tf32), anew)


def cuda_available() -> bool:
    """Return whether PyTorch can use a CUDA device."""
    import torch

    return torch.cuda.is_available()


def remark(wish: DeviceWish, options: RunOptions) -> str:
    """Return a note if the requested device is unavailable; else an empty text."""
    return "no CUDA device here: running on the CPU" if wish == "cuda" and options.execution.device == "cpu" else ""


DEFAULT_OPTIONS = RunOptions()
"""One run at a time in this process, batched, on the CPU with one thread."""
