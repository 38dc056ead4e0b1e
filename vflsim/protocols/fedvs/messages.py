"""The messages of FedVS, what they carry, and the acts of a coded round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from vflsim.codecs.frame import ONLY, Shape
from vflsim.coding.field import PrimeField
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.protocols.fedvs.client import CodedClientLearner
from vflsim.protocols.fedvs.keys import PRIMES, CodedKeys, columns_of
from vflsim.protocols.fedvs.learners import CodedServerLearner
from vflsim.protocols.fedvs.plan import SegmentedBatch, SegmentedBatches
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.tracing.acts import (
    Activated,
    Acts,
    ClientDelay,
    ClientsWait,
    ClientWork,
    ServerWaits,
    ServerWork,
    ToClients,
    ToPeers,
    ToServer,
)
from vflsim.tracing.exchanges import EMPTY, Content, Contents, single
from vflsim.vocabulary.on_demand import dtype
from vflsim.world.messages import Gradient, Message, Naming


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


def coded_contents(protocol: CodedKeys, setting: Setting, sender: int, receiver: int, places: int) -> Contents:
    """Return the contents of messages about a batch of this many places within a segment.

    If shares can be lost, the number of named clients is not known beforehand; nor is the number of padded rows.
    """
    width, everybody = setting.widths[0], range(len(setting.clients) + 1)
    if receiver == SERVER:
        coded = _elements(protocol, (places, width))
        return {CodedEmbedding.kind: coded, Shared.kind: [EMPTY], Missing.kind: _names(everybody)}
    if sender == SERVER:
        most, padding = places * protocol.K, -setting.data.rows % protocol.K
        gradients = [single((rows, width), setting.dtype) for rows in range(most - padding, most + 1)]
        return {Gradient.kind: [*gradients, EMPTY], Sharers.kind: _names(_sharers(protocol, setting))}
    columns, segment = columns_of(setting, sender), -(-setting.data.rows // protocol.K)
    return {
        DataShare.kind: _elements(protocol, (segment, columns)),
        ModelShare.kind: _elements(protocol, (columns, width)),
        **{kind: [EMPTY] for kind in (DataRequest.kind, ModelRequest.kind, Returned.kind)},
    }


def _elements(protocol: CodedKeys, shape: Shape) -> Sequence[Content]:
    """Return a tensor of elements of the field, one for each field that the protocol may choose."""
    return [single(shape, PrimeField(p).wire_dtype) for p in PRIMES[protocol.prime]]


def _names(counts: Iterable[int]) -> Sequence[Content]:
    return [single((count,), dtype("int64")) for count in counts]


def _sharers(protocol: CodedKeys, setting: Setting) -> Sequence[int]:
    """Return how many clients can be in a sum: without those whose shares are lost, which happens in outages alone."""
    interrupted = [getattr(setting.timings[client].availability, "interrupted", "") for client in setting.clients]
    many, most = len(setting.clients), protocol.sharers or len(setting.clients)
    if "lost" not in interrupted:
        return [most]
    away = sum(each != "" for each in interrupted)
    return [*range(max(0, most - away), most + 1), many]


# --- acts of a round --------------------------------------------------------------------------------------------------


def data_acts(clients: Mapping[int, CodedClientLearner], client: int) -> Acts:
    """Return the sharing of the data, for which a client waits when it first needs them."""
    sharing = clients[client].share_data()
    return ClientWork(sharing), ToPeers(DataShare(value=sharing.result[client]))


def coded_acts(
    protocol: CodedKeys,
    server: CodedServerLearner,
    clients: Mapping[int, CodedClientLearner],
    client: int,
    batch: Batch,
) -> Acts:
    """Return shares of the model to all, a coded embedding of all shares up, R of them decoded, a step, and a gradient.

    What a coded embedding costs does not depend on the clients in its sum, so one stands for all.
    """
    assert isinstance(batch, SegmentedBatch), "FedVS cuts its batches within segments"
    party, threshold = clients[client], protocol.threshold
    party.data_shares[client] = party.share_data().result[client]
    sharing = party.share_model(0)
    embed = party.coded_embed(batch, {client: sharing.result[client]})
    answer = CodedEmbedding(batch, embed.result, round=0, clients=(client,))
    answer.sender = client
    decode = server.decode(batch, [answer] * threshold, server.plan.clients)
    step = server.coded_step(batch, decode.result, [client] * threshold, server.plan.clients)
    gradient = Gradient(value=step.result, round=0)
    share = (
        ClientWork(sharing),
        ClientDelay("share", protocol.sharing_factor(party.plan)),
        ToPeers(ModelShare(value=sharing.result[client], round=0)),
        ClientsWait(),
    )
    answers = ClientWork(embed), ToServer(answer), ServerWaits(threshold), ServerWork(decode), ServerWork(step)
    over = ToClients(gradient, late=protocol.late), ClientWork(party.client_step(batch, gradient))
    return Activated(), *share, *answers, *over
