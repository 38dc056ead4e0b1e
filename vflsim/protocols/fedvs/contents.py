"""What messages of FedVS carry: shares, coded embeddings, and lists of clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vflsim.codecs.frame import Shape
from vflsim.coding.field import PrimeField
from vflsim.learning.batches import Batch
from vflsim.protocols.fedvs.keys import CodedKeys
from vflsim.protocols.fedvs.learning.client import CodedClientLearner
from vflsim.protocols.fedvs.learning.learners import CodedServerLearner
from vflsim.protocols.fedvs.learning.plan import SegmentedBatch
from vflsim.protocols.fedvs.messages import (
    CodedEmbedding,
    DataRequest,
    DataShare,
    Missing,
    ModelRequest,
    ModelShare,
    Returned,
    Shared,
    Sharers,
)
from vflsim.protocols.fedvs.scales import PRIMES, columns_of
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
from vflsim.world.messages import Gradient


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
