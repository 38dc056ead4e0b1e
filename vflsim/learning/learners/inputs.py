"""What operations read: of a party, a message, a kernel's work, of clients side by side; values kept as recipes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import RunError
from vflsim.learning.batches import Batch, Split, row_numbers
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.releases import Release
from vflsim.learning.privacy.base import Mechanism
from vflsim.learning.privacy.blinding import BlindedSum
from vflsim.learning.tasks import PredictionTask
from vflsim.vocabulary.on_demand import Tensor, cpu, torch


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyParts:
    """The holdings of one party, and the settings of its operations.

    ``features`` maps a split to a tensor (rows, *feature_shape), ``labels`` to the task's target tensor; None where the
    party holds none. ``batch`` is the rows of a full mini-batch. Weights and noise are drawn from ``seed``.
    ``mechanism`` protects what the party uploads; then, if it is a client of ``blinded_sum``, it blinds that.
    """

    party: int
    dtype: torch.dtype
    batch: int
    seed: int = 0
    device: torch.device = field(default_factory=cpu)
    features: Mapping[Split, Tensor] | None = None
    labels: Mapping[Split, Tensor] | None = None
    task: PredictionTask | None = None
    mechanism: Mechanism | None = None
    blinded_sum: BlindedSum | None = None


class Received(Protocol):
    """The parts of a message that operations read: sender, batch and tensor.

    Example::

        def total(message: Received) -> float:
            return float(message.value.value.sum())
    """

    @property
    def sender(self) -> int:
        """The party's number."""

    @property
    def batch(self) -> Any:
        """The ``Batch``, or None."""

    @property
    def value(self) -> Any:
        """The ``Handle`` of its only tensor, or None."""


ReceivedT = TypeVar("ReceivedT", bound=Received)


def in_client_order(messages: Sequence[ReceivedT]) -> list[ReceivedT]:
    """Return messages sorted by sender."""
    return sorted(messages, key=attrgetter("sender"))


Rows: TypeAlias = Batch | Split
"""Which rows: a training batch's, or all of a split."""
ByEmbeddings: TypeAlias = Callable[..., Tensor]
"""Maps embeddings h (…, rows, width) and tensors received to ∂L/∂h, of one client or of several side by side.

It is hashable: clients with equal ones take their local steps together.
"""


@dataclass(slots=True)
class EmbedWork:
    """A client embeds ``rows``; ``release`` is what its embeddings go through before others see them."""

    place: int
    rows: Rows
    release: Release
    steps: bool = False
    """Whether a step along a gradient for these embeddings may follow."""


@dataclass(slots=True)
class StepWork:
    """A client steps along the gradient ``received`` for ``batch``."""

    place: int
    batch: Batch
    received: Handle[Tensor]


@dataclass(slots=True)
class LocalWork:
    """A client steps on ``batch``, on a function of its embeddings and of what it has ``received``."""

    place: int
    batch: Batch
    received: Sequence[Handle[Tensor]]


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


_BLOCK = 2048
"""Rows of a split that are read at a time."""


class StackedFeatures:
    """The features of S clients out of the ``joint`` tensors, read as if all were ``width`` columns wide.

    ``joint`` maps a split to (rows, columns) and ``columns`` says which are whose, in client order. Narrower clients
    are padded with zeros on reading: nothing is stored twice. Clients that are equally wide and side by side are read
    in long rows.
    """

    def __init__(self, joint: Mapping[Split, Tensor], columns: Sequence[slice]) -> None:
        self._joint = joint
        widths = [column.stop - column.start for column in columns]
        self.clients, self.width = len(columns), max(widths)
        device = next(iter(joint.values())).device
        first = columns[0].start
        regular = all(
            column == slice(first + n * self.width, first + (n + 1) * self.width) for n, column in enumerate(columns)
        )
        self._block = slice(first, columns[-1].stop) if regular else None
        offsets = torch.arange(self.width, device=device)
        starts = torch.tensor([column.start for column in columns], device=device)
        here = offsets < torch.tensor(widths, device=device)[:, None]
        self._index = torch.where(here, starts[:, None] + offsets, starts[:, None])
        self._padding = None if bool(here.all()) else here
        self._latest: tuple[Batch, Tensor] | None = None

    def same_rows(self, rows: Rows) -> Tensor:
        """The rows of a training batch, or of a whole split, of all clients: (rows, S · width).

        A batch read twice in a row is gathered once: it is embedded, and then stepped on.
        """
        if isinstance(rows, str):
            return self._columns_of(self._joint[rows])
        if self._latest is None or self._latest[0] != rows:
            self._latest = rows, self._columns_of(self._joint["train"].index_select(0, self._ids(rows)))
        return self._latest[1]

    def rows_of(self, places: Sequence[int], batches: Sequence[Batch]) -> Tensor:
        """Each client's rows of its own training batch, all equally long: (G, rows, width)."""
        joint = self._joint["train"]
        ids = row_numbers(batches, joint.device)
        index = torch.tensor(places, device=joint.device)
        columns = joint.shape[1]
        if self._block is not None and self._block.start % self.width == 0 and columns % self.width == 0:
            pieces = columns // self.width  # per row; a client's row is one of them
            flat = ids * pieces + (self._block.start // self.width + index)[:, None]
            return joint.reshape(-1, self.width).index_select(0, flat.flatten()).view(*ids.shape, self.width)
        rows = joint[ids[:, :, None], self._index[index][:, None, :]]
        return rows if self._padding is None else rows * self._padding[index][:, None, :]

    def same_rows_of(self, batches: Sequence[Batch]) -> Tensor:
        """The rows of equally long training batches of all clients: (len(batches), rows, S · width)."""
        ids = row_numbers(batches, self._index.device)
        rows = self._joint["train"].index_select(0, ids.flatten())
        return self._columns_of(rows).reshape(*ids.shape, -1)

    def equals(self, other: StackedFeatures) -> bool:
        """Return whether these are the same columns of the same tensors."""
        same = all(self._joint[split] is other._joint[split] for split in self._joint)
        return same and torch.equal(self._index, other._index)

    def blocks(self, rows: Rows) -> Iterator[Tensor]:
        """``same_rows`` in pieces: what is computed of a whole split is never much larger than a piece."""
        if not isinstance(rows, str):
            yield self.same_rows(rows)
            return
        for piece in torch.split(self._joint[rows], _BLOCK):
            yield self._columns_of(piece)

    def _columns_of(self, rows: Tensor) -> Tensor:
        if self._block is not None:
            return rows[:, self._block]
        columns = rows.index_select(1, self._index.flatten())
        return columns if self._padding is None else columns * self._padding.flatten()

    def _ids(self, batch: Batch) -> Tensor:
        return batch.tensor(self._index.device)
