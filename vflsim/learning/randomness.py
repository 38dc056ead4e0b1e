"""The global random generators, seeded for a while: what code from outside draws follows from the run alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import RLock

import numpy as np
import torch
from numpy.random import mtrand

from vflsim.learning.batches import CPU

DRAWING = RLock()
"""In real time parties compute in threads of their own, all with the same global generators."""
_SPARE: list[np.random.MT19937] = []
"""NumPy takes long to make one."""


@contextmanager
def drawing_from(seed: int, device: torch.device = CPU, alone: bool = True) -> Iterator[None]:
    """Seed the global generators of PyTorch, NumPy and Python, and afterwards put them back as they were.

    ``seed`` is a non-negative integer below 2**63 (``streams.torch_seed``). Includes PyTorch's generator of ``device``.
    With ``alone`` the bodies of other threads wait until this one has ended. Blocks may contain blocks.
    """
    with DRAWING if alone else nullcontext():
        generators = [torch.default_generator]
        if device.type == "cuda":
            generators.append(torch.cuda.default_generators[device.index or torch.cuda.current_device()])
        before = [generator.get_state() for generator in generators]
        numpy, python = mtrand.get_bit_generator(), random.getstate()
        spare = _SPARE.pop() if _SPARE else np.random.MT19937(0)
        try:
            for generator in generators:
                generator.manual_seed(seed)
            mtrand.set_bit_generator(spare)
            np.random.seed([seed & (2**32 - 1), seed >> 32])
            random.seed(seed)
            yield
        finally:
            mtrand.set_bit_generator(numpy)
            _SPARE.append(spare)
            random.setstate(python)
            for generator, state in zip(generators, before, strict=True):
                generator.set_state(state)
