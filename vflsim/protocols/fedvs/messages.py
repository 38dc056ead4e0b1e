"""The messages of FedVS: shares of data and models, requests for lost ones, coded embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from vflsim.codecs.frame import ONLY
from vflsim.learning.batches import BatchSequence
from vflsim.protocols.fedvs.learning.plan import SegmentedBatch, SegmentedBatches
from vflsim.world.messages import Message, Naming


@dataclass(slots=True, eq=False)
class DataShare(Message):
    """A share of a client's data, shape (rows of a segment, columns) (FedVS Eq. 2)."""

    kind: ClassVar[str] = "data_share"

    def rows_of(self, name: str, batches: BatchSequence) -> NDArray[np.int64]:
        """Return for each place within a segment the rows of all segments, (places, K)."""
        assert isinstance(batches, SegmentedBatches), "FedVS cuts its batches within segments"
        rows = np.arange(batches.segment_rows * batches.segments).reshape(batches.segments, -1).T
        return np.where(rows < batches.training_rows, rows, -1)


@dataclass(slots=True, eq=False)
class DataRequest(Message):
    """A client asks another for the share of its data, which it lacks."""

    kind: ClassVar[str] = "data_request"


@dataclass(slots=True, eq=False)
class ModelShare(Message):
    """A share of a client's model of a round, shape (columns, embedding) (FedVS Eq. 4)."""

    kind: ClassVar[str] = "model_share"
    rowless: ClassVar[frozenset[str]] = frozenset({ONLY})


@dataclass(slots=True, eq=False)
class Returned(Message):
    """A client reports to another that it has been down, and that its messages may be lost."""

    kind: ClassVar[str] = "returned"


@dataclass(slots=True, eq=False)
class ModelRequest(Message):
    """A client asks another for its model share of a round, which it has missed."""

    kind: ClassVar[str] = "model_request"


@dataclass(slots=True, eq=False)
class Shared(Message):
    """A client reports to the server that it has sent the shares of its model."""

    kind: ClassVar[str] = "shared"
    ordered: ClassVar[bool] = True


@dataclass(slots=True, eq=False)
class Missing(Naming):
    """A client lists for the server the clients whose shares it lacks and will not get.

    An empty list: it has been down, and asks for the sharers of the round.
    """

    kind: ClassVar[str] = "missing"


@dataclass(slots=True, eq=False)
class Sharers(Naming):
    """The server announces the clients in the sum of the round, for the ``number``-th time in the round.

    The header holds the number in place of the batch.
    """

    kind: ClassVar[str] = "sharers"
    ordered: ClassVar[bool] = True
    number: int = 0


@dataclass(slots=True, eq=False)
class CodedEmbedding(Message):
    """An evaluation of the shares of ``clients``, shape (batch / K, embedding) (FedVS Eq. 5)."""

    kind: ClassVar[str] = "coded_embedding"
    embedding: ClassVar[bool] = True

    def rows_of(self, name: str, batches: BatchSequence) -> NDArray[np.int64]:
        """Return for each place of the batch the rows of all segments, (|B|, K)."""
        assert isinstance(self.batch, SegmentedBatch), "FedVS cuts its batches within segments"
        rows = np.where(self.batch.real, self.batch.rows, -1)
        return rows.reshape(-1, len(self.batch.positions)).T
