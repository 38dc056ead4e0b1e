"""The acts of FedVS: shares of the data once; in a round shares of models, R answers, and a step."""

from __future__ import annotations

from collections.abc import Mapping

from vflsim.learning.batches import Batch
from vflsim.protocols.fedvs.keys import CodedKeys
from vflsim.protocols.fedvs.learning.client import CodedClientLearner
from vflsim.protocols.fedvs.learning.segments import SegmentedBatch
from vflsim.protocols.fedvs.learning.server import CodedServerLearner
from vflsim.protocols.fedvs.messages import CodedEmbedding, DataShare, ModelShare
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
from vflsim.world.messages import Gradient


def data_acts(clients: Mapping[int, CodedClientLearner], client: int) -> Acts:
    """Return the sharing of the data, for which a client waits when it first needs them."""
    made = clients[client].share_data()
    return ClientWork(made), ToPeers(DataShare(value=made.result[client]))


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
    made = party.share_model(0)
    embed = party.coded_embed(batch, {client: made.result[client]})
    answer = CodedEmbedding(batch, embed.result, round=0, clients=(client,))
    answer.sender = client
    decode = server.decode(batch, [answer] * threshold, server.plan.clients)
    step = server.coded_step(batch, decode.result, [client] * threshold, server.plan.clients)
    gradient = Gradient(value=step.result, round=0)
    share = (
        ClientWork(made),
        ClientDelay("share", protocol.sharing_factor(party.plan)),
        ToPeers(ModelShare(value=made.result[client], round=0)),
        ClientsWait(),
    )
    answers = ClientWork(embed), ToServer(answer), ServerWaits(threshold), ServerWork(decode), ServerWork(step)
    over = ToClients(gradient, late=protocol.late), ClientWork(party.client_step(batch, gradient))
    return Activated(), *share, *answers, *over
