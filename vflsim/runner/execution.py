"""How a run is carried out: what the scenario does not say, and its results follow to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True, slots=True)
class Execution:
    """How a run is carried out.

    ``eager``: one module per client and one call each, nothing batched. ``device``: where tensors live, ``cpu`` or
    ``cuda``. ``threads``: PyTorch's threads of a run; their number changes the last bits, so it is fixed and recorded,
    and neither the machine's nor a matter of how many runs go on at the same time.
    """

    eager: bool = False
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1

    @property
    def learning_plane(self) -> Literal["batched", "eager"]:
        """How it is called in run.json."""
        return "eager" if self.eager else "batched"

    @contextmanager
    def fixed_threads(self) -> Iterator[None]:
        """PyTorch with so many threads, and as it was afterwards."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


USUAL = Execution()
"""Batched, on the CPU, with one thread."""
