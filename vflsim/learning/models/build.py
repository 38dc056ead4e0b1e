"""Building a module from a seed and nothing else, global generators seeded for a while, and modules of the user's."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from threading import RLock
from typing import Any, Literal, Protocol

import numpy as np
from numpy.random import mtrand
from pydantic import JsonValue

from vflsim.files import bytes_text, machine_memory
from vflsim.learning.models.shapes import Chain
from vflsim.vocabulary.imported import imported, reason
from vflsim.vocabulary.on_demand import Tensor, loaded, nn, real, torch

DRAWING = RLock()
"""In real time parties compute in threads of their own, all with the same global generators."""
_SPARE: list[np.random.MT19937] = []
"""NumPy takes long to make one."""


def draw_from(seed: int, generators: Sequence[torch.Generator]) -> None:
    """Seed the global generators of NumPy and Python, and these ``generators`` of PyTorch, for good."""
    for generator in generators:
        generator.manual_seed(seed)
    np.random.seed(seed & (2**32 - 1))
    random.seed(seed)


def generators_of(device: torch.device | None) -> list[torch.Generator]:
    """Return PyTorch's global generators for the CPU and for ``device``; none before PyTorch is there to draw."""
    if not loaded():
        return []
    if device is None or device.type != "cuda":
        return [torch.default_generator]
    number = torch.cuda.current_device() if device.index is None else device.index
    return [torch.default_generator, torch.cuda.default_generators[number]]


@contextmanager
def drawing_from(seed: int, device: torch.device | None = None, alone: bool = True) -> Iterator[None]:
    """Seed the global generators of PyTorch, NumPy and Python, and afterwards put them back as they were.

    ``seed`` is a non-negative integer below 2**63 (``streams.torch_seed``). Otherwise as ``drawing_apart``.
    """
    with drawing_apart(device, alone):
        draw_from(seed, generators_of(device))
        yield


@contextmanager
def drawing_apart(device: torch.device | None = None, alone: bool = True) -> Iterator[None]:
    """Put the global generators back as they were when the body has ended, which seeds them (``draw_from``).

    Includes PyTorch's generator of ``device``. With ``alone`` the bodies of other threads wait until this one has
    ended. Blocks may contain blocks.
    """
    with DRAWING if alone else nullcontext():
        generators = generators_of(device)
        before = [generator.get_state() for generator in generators]
        numpy, python = mtrand.get_bit_generator(), random.getstate()
        spare = _SPARE.pop() if _SPARE else np.random.MT19937(0)
        try:
            mtrand.set_bit_generator(spare)
            yield
        finally:
            mtrand.set_bit_generator(numpy)
            _SPARE.append(spare)
            random.setstate(python)
            for generator, state in zip(generators, before, strict=True):
                generator.set_state(state)


_COUNTABLE = 2**40
"""Weights up to which it goes without saying that PyTorch can make them."""


class Buildable(Protocol):
    """A model of a scenario, by value: two that are equal build the same layers."""

    def build(self, *shapes: Any) -> nn.Module:
        """Return a new module for these shapes."""

    def chain(self, *shapes: Any) -> Chain | None:
        """Return the chain of linear layers that it is for these shapes; None if it is anything else."""


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

    @property
    def chain(self) -> Chain | None:
        """The chain of linear layers that it builds; None if it builds anything else."""
        return self.model.chain(*self.shapes)


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
        return build().to(real(device), real(dtype))


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


def weights_of(build: Callable[[], nn.Module]) -> tuple[int, int]:
    """How many trained and frozen weights the module has that ``build`` makes; where it can, without their memory.

    Raises ValueError if it cannot be built at all, say because no tensor can have so many.
    """
    if not isinstance(build, Draft):
        return _weights(build)
    chain = build.chain
    return _known_weights(build) if chain is None or chain.parameters > _COUNTABLE else (chain.parameters, 0)


@lru_cache(maxsize=256)
def _known_weights(build: Draft) -> tuple[int, int]:
    return _weights(build)


def _weights(build: Callable[[], nn.Module]) -> tuple[int, int]:
    module = drafted(build)
    if module is None:
        with DRAWING, torch.random.fork_rng(devices=[]):
            try:
                module = build()
            except (TypeError, RuntimeError) as error:
                reason = str(error).splitlines()[0]
                reason = "it has more weights than PyTorch can count" if "verflow" in reason else reason
                raise ValueError(f"a model cannot be built: {reason}") from error
    return counted_weights(module)


def counted_weights(module: nn.Module) -> tuple[int, int]:
    """How many weights are trained, and how many frozen: buffers, and parameters without a gradient."""
    tensors = [*module.parameters(), *module.buffers()]
    trained = sum(tensor.numel() for tensor in tensors if tensor.requires_grad)
    return trained, sum(tensor.numel() for tensor in tensors) - trained


Arguments = dict[str, JsonValue]

_ROWS = 2


def construct(path: str, arguments: Mapping[str, Any], **offered: Any) -> nn.Module:
    """Call what ``path`` names with ``arguments``, and with those of ``offered`` that its signature names.

    Raises ValueError if the path does not import, the call fails, or what comes back is no ``nn.Module``.
    """
    target = imported(path)
    if not callable(target):
        raise ValueError(f"{path} is {_described(target)}; allowed: a class (or function) that makes a torch.nn.Module")
    if isinstance(target, type) and not issubclass(target, nn.Module):
        raise ValueError(f"{path} is a class but not a torch.nn.Module; derive it from torch.nn.Module")
    extra = {key: value for key, value in offered.items() if key in _named_parameters(target)}
    try:
        module = target(**{**extra, **arguments})
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        names = ", ".join([*arguments, *(key for key in extra if key not in arguments)]) or "no arguments"
        what = f"{path} could not be built with {names}: {reason(error)}"
        raise ValueError(f"{what}; allowed: parameters named {', '.join(offered)}, and those in `arguments`") from error
    if not isinstance(module, nn.Module):
        raise ValueError(f"{path} made {_described(module)}; allowed: a torch.nn.Module")
    return module


def trial_run(path: str, build: Callable[[], nn.Module], shape: tuple[int, ...], width: int) -> None:
    """Build a module and send two rows of zeros of ``shape`` through it, as in training.

    Raises ValueError unless a floating-point tensor of (2, ``width``) comes out of trainable weights. It may draw
    random numbers: ``learning.watch`` seeds the global generators for each operation.
    """
    _must_fit(path, build)
    module = seeded(build, seed=0, dtype=torch.float32).train()
    fed = f"zeros of shape {(_ROWS, *shape)}"
    with drawing_from(0), torch.no_grad():
        try:
            output = module(torch.zeros((_ROWS, *shape)))
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise ValueError(f"{path} failed on {fed}: {reason(error)}") from error
    if not isinstance(output, Tensor):
        raise ValueError(f"{path} returned {_described(output)} for {fed}; allowed: a tensor of shape {(_ROWS, width)}")
    if tuple(output.shape) != (_ROWS, width) or not output.is_floating_point():
        raise ValueError(
            f"{path} returned {output.dtype} of shape {tuple(output.shape)} for {fed}; "
            f"allowed: floating point of shape {(_ROWS, width)}, {width} numbers a row"
        )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ValueError(f"{path} has no weights to train; allowed: a module with parameters")


def _must_fit(path: str, build: Callable[[], nn.Module]) -> None:
    """Raise ValueError if the weights alone exceed the memory of this machine; before they are made, if that shows."""
    module, there = drafted(build), machine_memory()
    weights = 0 if module is None else sum(weight.numel() for weight in module.parameters())
    needed = weights * torch.float32.itemsize
    if needed > there:
        raise ValueError(
            f"{path} has {weights:,} weights, which take {bytes_text(needed)}; allowed: up to {bytes_text(there)}, "
            "the memory of this machine; make it smaller"
        )


def parameters_named(path: str) -> frozenset[str]:
    """The parameters that the callable at ``path`` names. Raises ValueError if it does not import."""
    return _named_parameters(imported(path))


def _named_parameters(target: Callable[..., Any]) -> frozenset[str]:
    """The parameters a callable names; those it would only swallow by ``**kwargs`` do not count."""
    try:
        return frozenset(inspect.signature(target).parameters)
    except (TypeError, ValueError):  # some classes written in C have no signature
        return frozenset()


def _described(value: object) -> str:
    return f"a value of type {type(value).__name__}"
