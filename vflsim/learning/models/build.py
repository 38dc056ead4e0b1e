"""Building a module so that its initial weights follow from a seed and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import torch
from torch import nn

from vflsim.learning.randomness import DRAWING


class Buildable(Protocol):
    """A model of a scenario, by value: two that are equal build the same layers."""

    def build(self, *shapes: Any) -> nn.Module:
        """Return a new module for these shapes."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Builds a model of the package for some shapes; what equal drafts build has the same size, and is counted once.

    Not for models whose code comes from elsewhere: what that builds may change.
    """

    model: Buildable
    shapes: tuple[Any, ...]

    def __call__(self) -> nn.Module:
        """Return a new module."""
        return self.model.build(*self.shapes)


def seeded(
    build: Callable[[], nn.Module], seed: int, dtype: torch.dtype, device: torch.device | None = None
) -> nn.Module:
    """Call ``build`` with PyTorch's CPU generator set to ``seed``; the generator is put back afterwards.

    Weights are drawn in PyTorch's default dtype and then converted, so a float64 run starts from the numbers of the
    float32 run; and on the CPU, so a run on another ``device`` does, too.
    ``seed`` is a non-negative integer below 2**64 (``streams.torch_seed``).
    """
    with DRAWING, torch.random.fork_rng(devices=[]):  # no device: models are built on the CPU and moved later
        # Not torch.manual_seed: that one would reseed the accelerators' generators as well.
        torch.default_generator.manual_seed(seed)
        return build().to(device, dtype)


def least_batch(module: nn.Module, shape: tuple[int, ...]) -> Literal[1, 2]:
    """The fewest rows of ``shape`` that ``module`` can train on: 2 where batch normalisation needs a spread, else 1.

    A scenario whose smallest batch (``BatchSequence.smallest``) is below this has to be refused: PyTorch would stop in
    the middle of training. The module itself is left as it was.
    """
    trial = deepcopy(module).train()
    parameter = next(trial.parameters(), None)
    row = torch.zeros((1, *shape), dtype=None if parameter is None else parameter.dtype)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            output = trial(row)
        except Exception:  # "Expected more than 1 value per channel when training"; a user's module may raise anything
            return 2
    return 1 if output.shape[:1] == (1,) else 2  # a module that squeezes loses the axis of the rows


def mixes_rows(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether in training a row's output depends on the other rows, as with batch normalisation.

    Found by trial: the first of two rows of ``shape`` keeps its output, or not, when the second changes. True where a
    user's module fails on that, so that nothing is taken for granted. The module itself is left as it was.
    """
    parameter = next(module.parameters(), None)
    rows = 2 * torch.rand((3, *shape), generator=torch.Generator().manual_seed(0))  # below 2: also codes of categories
    rows = rows if parameter is None else rows.to(parameter.dtype)
    outputs = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for pair in (rows[:2], rows[::2]):
            torch.default_generator.manual_seed(0)  # of a drop-out
            try:
                outputs.append(deepcopy(module).train()(pair)[0])
            except Exception:  # a user's module may raise anything
                return True
    return not torch.equal(*outputs)


def drafted(build: Callable[[], nn.Module]) -> nn.Module | None:
    """Return the module on the meta device, without memory for its weights; None if it cannot be made there."""
    with DRAWING, torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                return build()
        except Exception:  # a user's module may need values, or be beyond counting
            return None


def parameters_of(build: Callable[[], nn.Module]) -> int:
    """How many weights the module has that ``build`` makes; where it can, without the memory for them.

    Raises ValueError if it cannot be built at all, say because no tensor can have so many.
    """
    return _known_parameters(build) if isinstance(build, Draft) else _parameters(build)


@lru_cache(maxsize=256)
def _known_parameters(build: Draft) -> int:
    return _parameters(build)


def _parameters(build: Callable[[], nn.Module]) -> int:
    module = drafted(build)
    if module is None:
        with DRAWING, torch.random.fork_rng(devices=[]):
            try:
                module = build()
            except (TypeError, RuntimeError) as error:
                reason = str(error).splitlines()[0]
                reason = "it has more weights than PyTorch can count" if "verflow" in reason else reason
                raise ValueError(f"a model cannot be built: {reason}") from error
    return sum(parameter.numel() for parameter in module.parameters())
