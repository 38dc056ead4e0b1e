"""The acts of EASTER's rounds: two trips, while the active party embeds and predicts, too."""

from __future__ import annotations

from collections.abc import Mapping

from vflsim.learning.batches import Batch
from vflsim.protocols.easter.learning import ActiveParty, EasterParty
from vflsim.protocols.easter.messages import GlobalEmbedding, Prediction
from vflsim.recurrences.acts import (
    Activated,
    Acts,
    ClientWork,
    ServerWaits,
    ServerWork,
    ToClients,
    ToServer,
    embedding,
)
from vflsim.world.messages import Gradient


def two_trip_acts(active: ActiveParty, clients: Mapping[int, EasterParty], client: int, batch: Batch) -> Acts:
    """Return an embedding up, the mean down, a prediction up, a gradient down, and a step of both nets."""
    party = clients[client]
    own, (embed, up) = active.embed(batch), embedding(clients, client, batch)
    join = active.join(own.result, [up] * len(clients))
    mean = GlobalEmbedding(batch, join.result, round=0)
    mine, predict = active.predict(mean), party.predict(mean)
    prediction = Prediction(batch, predict.result, round=0)
    prediction.sender = client
    serve = active.server_step(batch, mine.result, [prediction])
    gradient = Gradient(value=serve.result[client], round=0)
    first = Activated(), ClientWork(embed), ToServer(up), ServerWork(own), ServerWaits(), ServerWork(join)
    second = ClientWork(predict), ToServer(prediction), ServerWork(mine), ServerWaits(), ServerWork(serve)
    step = ClientWork(party.client_step(batch, gradient))
    return *first, ToClients(mean), *second, ToClients(gradient), step
