"""Lazy values: a checkpoint keeps the recipe that computes the value, and not the value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vflsim.errors import RunError
from vflsim.learning.batches import Batch

Plain: TypeAlias = Any
"""Lists, mappings, texts and numbers: what JSON can hold."""


class RecipeWriter(Protocol):
    """Turns the parts of a recipe into plain data."""

    def tensor(self, tensor: Tensor) -> Plain:
        """Keep a tensor; return what stands for it."""

    def batch(self, batch: Batch) -> Plain:
        """Return what stands for a batch."""

    def once(self, value: KeptValue) -> Plain:
        """Keep the recipe of a value that several recipes contain; return what stands for it."""


class RecipeReader(Protocol):
    """Finds the parts of a recipe again, in a run that has come to the place where it was written."""

    def tensor(self, plain: Plain) -> Tensor:
        """Return a tensor."""

    def batch(self, plain: Plain) -> Any:
        """Return a batch of the run."""

    def shared(self, kind: type[KeptValue], plain: Plain) -> Any:
        """Return a value that was kept once."""

    def learner(self, party: int) -> Any:
        """Return the learner of a client."""


class KeptValue(ABC):
    """A value that is computed where it is first needed. Its recipe says how."""

    recipe: ClassVar[str]
    """Names this class in a checkpoint."""

    def rows_at(self, places: NDArray[np.int64]) -> Tensor | None:
        """Return some rows of the tensor that its receiver would compute, for views; None if it has no rows."""
        return None

    @property
    def at_once(self) -> bool:
        """Whether a party in a process of its own computes it with its operation; otherwise when it is sent."""
        return True

    def on_wire(self) -> Tensor:
        """Compute the tensor that goes to another process. Raises ``RunError`` for a value that never leaves."""
        raise RunError(f"a value {self.recipe!r} sent to another process", allowed="values that are sent as tensors")

    @abstractmethod
    def written(self, writer: RecipeWriter) -> Plain:
        """Return the recipe as plain data. Computes nothing."""

    @classmethod
    @abstractmethod
    def read(cls, reader: RecipeReader, plain: Plain) -> Self:
        """Return a value with this recipe."""
