"""The global random generators, seeded for a while: what code from outside draws follows from the run alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import RLock

import numpy as np
from numpy.random import mtrand

from vflsim.vocabulary.on_demand import loaded, torch

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
