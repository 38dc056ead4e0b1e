"""Training settings: batches, optimisers, precision. Protocols may override them for themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Discriminator, Field, Tag

from vflsim.learning.optimizers import AnyOptimizer, Optimizer
from vflsim.learning.tasks import AnyLoss, Auto
from vflsim.vocabulary.base import Part, as_in
from vflsim.vocabulary.entries import Entry, OneOrMany, PerClient, for_each, mentions_own_symbol
from vflsim.vocabulary.on_demand import dtype as dtype_named, torch
from vflsim.vocabulary.quantities import CountOrAll, Fraction01

Batches = Literal["shared", "own"]
Sampling = Literal["shuffled", "uniform"]
LastBatch = Literal["keep", "drop"]
Dtype = Literal["float32", "float64"]


def _form(value: Any) -> str:
    if isinstance(value, Mapping):
        return "each" if "select" in value or mentions_own_symbol(value) else "one"
    return "each" if isinstance(value, list | tuple) else "one"


ClientOptimizer: TypeAlias = Annotated[
    Annotated[AnyOptimizer, Tag("one")]
    | Annotated[
        tuple[Annotated[Entry[Optimizer], PerClient(AnyOptimizer)], ...], Field(min_length=1), OneOrMany(), Tag("each")
    ],
    Discriminator(_form),
]
"""One update rule for all clients, or a list of rules with ``select``: the last one that selects a client counts."""


class Dropout(Part):
    """Party-wise dropout: in each step the server treats some clients' embeddings as missing.

    Each client is left out of a batch with probability ``party``, independently, at least one stays, and those left out
    get a gradient of zeros. Times and bytes do not change. Sources: PlugVFL (Sun et al. 2023) and MAGS (2025).

    Example: ``{party: 0.2}``
    """

    party: Fraction01
    """The probability with which a client is left out of a batch."""


class Training(Part):
    """The training settings of every protocol that does not override them.

    Example: ``{batch: 64, batches: shared, sampling: shuffled, last_batch: drop, client_optimizer: {kind: sgd, lr:
    0.1}, server_optimizer: {kind: adam, lr: 0.001}, dtype: float64, loss: auto, dropout: {party: 0.2}}``
    """

    batch: CountOrAll
    """Rows of a mini-batch, up to the number of training rows; ``all`` means every training row (full batch)."""
    batches: Batches = "shared"
    """``shared``: all clients walk the same seeded sequence of mini-batches; ``own``: each client draws its own."""
    sampling: Sampling = "shuffled"
    """``shuffled``: an epoch is a random order of all rows, cut into batches; ``uniform``: every batch is drawn anew
    from all rows, without replacement, so that a row may come twice in an epoch, or not at all."""
    last_batch: LastBatch = "keep"
    """Whether the last rows of an epoch are used when they do not fill a batch."""
    client_optimizer: ClientOptimizer
    """The update rule of the clients' weights: one for all, or a list of rules with ``select``."""
    server_optimizer: AnyOptimizer
    """The update rule of the server's weights."""
    dtype: Dtype = "float32"
    """Of weights, features and embeddings."""
    loss: AnyLoss = Auto()
    """``auto`` follows from the task; another loss must fit the task. The metric ``loss`` is this one."""
    dropout: Dropout | None = None
    """Clients that the server leaves out of steps at random: predictions learn to do without them. ``{party: 0}`` turns
    it off for one protocol."""

    @property
    def torch_dtype(self) -> torch.dtype:
        """``dtype`` as PyTorch names it."""
        return dtype_named(self.dtype)

    @property
    def party_dropout(self) -> float:
        """The probability with which a step leaves a client out; 0 without dropout."""
        return 0.0 if self.dropout is None else self.dropout.party

    def client_optimizers(self, clients: int) -> tuple[Optimizer, ...]:
        """Return every client's update rule, in client order. Raises ValueError if a client has none."""
        if isinstance(self.client_optimizer, tuple):
            return for_each(self.client_optimizer, clients, "optimiser")
        return (self.client_optimizer,) * clients

    def batch_of(self, rows: int) -> int:
        """Return the rows of a full mini-batch of ``rows`` training rows. Raises ValueError for more than there are."""
        if self.batch == "all":
            return rows
        if self.batch > rows:
            raise ValueError(
                f"a batch of {self.batch:,} rows cannot be drawn from {rows:,} training rows; allowed: 1 to "
                f"{rows:,}, or all; for full batches say `batch: all`"
            )
        return self.batch

    def overridden(self, by: TrainingOverride | None) -> Training:
        """Return this with the values of ``by`` in their place; an optimiser is replaced as a whole."""
        if by is None:
            return self
        values = {key: getattr(by, key) for key in by.model_fields_set}
        return self.model_copy(update={key: value for key, value in values.items() if value is not None})


class TrainingOverride(Part):
    """The training settings that one protocol overrides: any part of ``Training``, with its meaning there.

    Example: ``{batch: all, batches: own, sampling: uniform, last_batch: drop, client_optimizer: {kind: sgd, lr:
    0.1}, server_optimizer: {kind: sgd, lr: 0.1}, dtype: float64, loss: cross_entropy, dropout: {party: 0.2}}``
    """

    model_config = ConfigDict(json_schema_extra=as_in(Training))

    batch: CountOrAll | None = None
    batches: Batches | None = None
    sampling: Sampling | None = None
    last_batch: LastBatch | None = None
    client_optimizer: ClientOptimizer | None = None
    server_optimizer: AnyOptimizer | None = None
    dtype: Dtype | None = None
    loss: AnyLoss | None = None
    dropout: Dropout | None = None
