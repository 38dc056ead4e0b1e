"""One protocol of a scenario, resolved: its parties, their models and their timing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from vflsim.codecs import Codec
from vflsim.learning.batches import BatchSequence, Split
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.models.aggregates import Aggregate
from vflsim.learning.models.client import ClientModel
from vflsim.learning.models.server import ServerModel
from vflsim.learning.optimizers import Optimizer
from vflsim.learning.privacy.base import Mechanism
from vflsim.learning.privacy.blinding import BlindedSum, Blinding
from vflsim.learning.training import Training
from vflsim.streams import SERVER, SHARED
from vflsim.timing.party import PartyTiming, Power
from vflsim.vocabulary.on_demand import torch
from vflsim.world.networks import FLUID, AnyNetwork, AnyTransport


@dataclass(frozen=True)
class Setting:
    """Settings of all parties of one protocol, with overrides and formulas applied.

    ``clients`` are the participants, in client order. ``timings`` has the server at 0 and client m at m; ``models`` has
    client m at m − 1, participant or not. ``active_model`` embeds the server's own features, if it holds any.
    ``predictors`` has the prediction net of client m at m − 1, for protocols where every party has one.
    ``evaluation_takes_time``: evaluation is part of the run's virtual time. ``context`` binds masks to what the run
    depends on. ``public`` is what clients have told of their data (``Protocol`` with ``Peering``), in a live run alone:
    there ``data`` holds one party's.

    Example::

        setting.clients, setting.widths, setting.batch  # ((1, 2, 3, 4), (6, 6, 6, 6), 20)
    """

    clients: tuple[int, ...]
    timings: tuple[PartyTiming, ...]
    network: AnyNetwork
    models: tuple[ClientModel, ...]
    aggregate: Aggregate
    server_model: ServerModel
    training: Training
    codec: Codec
    mechanism: Mechanism | None
    data: LoadedData
    evaluation_takes_time: bool = False
    active_model: ClientModel | None = None
    blinding: Blinding | None = None
    transport: AnyTransport = FLUID
    predictors: tuple[ServerModel, ...] = ()
    context: str = ""
    public: Mapping[int, Mapping[str, float]] | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of features, weights and embeddings."""
        return self.training.torch_dtype

    @cached_property
    def blinded_sum(self) -> BlindedSum | None:
        """The sum of the participants' blinded embeddings; None without blinding."""
        return None if self.blinding is None else BlindedSum(self.blinding, self.clients, self.dtype, self.context)

    @cached_property
    def powers(self) -> dict[int, Power]:
        """What the server and the participants draw, of those that say it."""
        return {party: power for party in (SERVER, *self.clients) if (power := self.timings[party].power) is not None}

    @property
    def crashing(self) -> tuple[int, ...]:
        """The participants whose crashes lose their work (``interrupted: lost``)."""
        return tuple(m for m in self.clients if getattr(self.timings[m].availability, "interrupted", "") == "lost")

    @property
    def uploaded(self) -> torch.dtype:
        """The dtype of an uploaded embedding."""
        return self.dtype if self.blinded_sum is None else self.blinded_sum.uploaded

    @property
    def device(self) -> torch.device:
        """The device of the data."""
        return self.data.joint["train"].device

    @cached_property
    def batch(self) -> int:
        """The rows of a full batch."""
        return self.training.batch_of(self.data.rows)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The embedding size of every participant."""
        return tuple(self.models[client - 1].embedding for client in self.clients)

    @property
    def joined(self) -> tuple[int, ...]:
        """The parties whose embeddings the aggregate joins: the server, if it embeds features, and the participants."""
        return self.clients if self.active_model is None else (SERVER, *self.clients)

    @cached_property
    def joined_widths(self) -> tuple[int, ...]:
        """The widths that the aggregate joins: of the server's own embedding, if any, and the participants'."""
        return self.widths if self.active_model is None else (self.active_model.embedding, *self.widths)

    @cached_property
    def present(self) -> dict[Split, torch.Tensor] | None:
        """The rows that the ``joined`` parties hold, (rows, parties) by split; None if they hold all."""
        return self.data.present_at(*self.joined)

    @cached_property
    def bound_aggregate(self) -> Aggregate:
        """The aggregate, with the number of features of each participant."""
        features = [math.prod(shape) for shape in self.data.shapes]
        if self.active_model is None:
            return self.aggregate.bound(features, self.clients)
        clients = [client + 1 for client in self.clients]  # numbered after the server
        return self.aggregate.bound([math.prod(self.data.active_shape), *features], [1, *clients])

    @property
    def server_inputs(self) -> int:
        """The inputs of the server's model."""
        return self.bound_aggregate.width(self.joined_widths)

    def predictor_of(self, party: int) -> ServerModel:
        """Return the prediction net of a party: the server's model, or a client's."""
        return self.predictors[party - 1] if party else self.server_model

    def feature_shape_of(self, party: int) -> tuple[int, ...]:
        """Return the shape of a party's features, with the cardinalities of categorical columns."""
        return self.data.shapes[party - 1] if party else self.data.active_shape

    def embedding_model_of(self, party: int) -> ClientModel:
        """Return the embedding model of a client or of the active party. Raises ``ValueError`` for another server."""
        model = self.models[party - 1] if party else self.active_model
        if model is None:
            raise ValueError("the server holds no features, so it has no embedding model")
        return model

    def tops(self, of_parties: bool) -> dict[int, tuple[ServerModel, int]]:
        """Return by party the models on embeddings, and their inputs: the server's alone, or all prediction nets."""
        if not of_parties:
            return {SERVER: (self.server_model, self.server_inputs)}
        parties = [*([] if self.active_model is None else [SERVER]), *self.clients]
        return {party: (self.predictor_of(party), self.embedding_model_of(party).embedding) for party in parties}

    def optimizer_of(self, party: int) -> Optimizer:
        """Return the update rule of a party's weights; the server has number 0."""
        return self.training.server_optimizer if party == SERVER else self._client_optimizers[party - 1]

    @cached_property
    def _client_optimizers(self) -> tuple[Optimizer, ...]:
        return self.training.client_optimizers(len(self.models))

    def alike(self, client: int) -> tuple[object, ...]:
        """Return a key that is equal for clients with the same models and the same shape of features."""
        return id(self.models[client - 1]), id(self.predictor_of(client)), self.data.shapes[client - 1]

    @cached_property
    def sorts(self) -> tuple[tuple[int, ...], ...]:
        """The participants by sort, in client order: with the same models, shape of features, and update rule."""
        rules: dict[Optimizer, Optimizer] = {}
        ids: dict[int, int] = {}  # the update rules' ids: of equal ones the same
        members: dict[tuple[object, ...], list[int]] = {}
        key: tuple[object, ...] = ()
        its: list[int] = []
        for client in self.clients:
            rule = self._client_optimizers[client - 1]
            if id(rule) not in ids:
                ids[id(rule)] = id(rules.setdefault(rule, rule))
            signature = (*self.alike(client), ids[id(rule)])
            if signature != key:  # mostly alike neighbours
                key, its = signature, members.setdefault(signature, [])
            its.append(client)
        return tuple(map(tuple, members.values()))

    def on(self, device: str) -> Setting:
        """Return a copy with the data on another device."""
        return replace(self, data=self.data.on(device))


# --- batch plan -------------------------------------------------------------------------------------------------------


MakeBatches: TypeAlias = Callable[[int, Training, int], BatchSequence]
"""Makes batches of so many training rows, from training settings and a seed. Raises ValueError if it cannot."""


def shared_batches(rows: int, training: Training, seed: int) -> BatchSequence:
    """Make the mini-batches of ``rows`` training rows that all parties share."""
    return BatchSequence(rows, training.model_copy(update={"batches": "shared"}), seed, SHARED)


@dataclass(eq=False)
class BatchPlan:
    """Mini-batches that all parties share unless they step independently; a message from and to every client a round.

    ``together``: a step is on all clients' embeddings of a batch, and an epoch is a pass of the steps over the data.
    Else each embedding counts by itself, and an epoch is as many of them as one pass of all clients has. ``make``
    makes other batches; a trace cannot tell them, since it begins with one. ``to_peers``: clients also send each other
    messages.

    Examples::

        BatchPlan(to_peers=True).messages(clients=10)  # 110


        class TwoTrips(BatchPlan):
            def messages(self, clients: int) -> int:
                return 4 * clients


        TwoTrips().messages(clients=10)  # 40
    """

    together: bool = True
    make: MakeBatches = shared_batches
    to_peers: bool = False

    def batches(self, rows: int, training: Training, seed: int) -> BatchSequence:
        """Make the mini-batches of ``rows`` training rows that all parties share. Raises ValueError if it cannot."""
        return self.make(rows, training, seed)

    def epochs(self, rounds: float, embeddings_used: float, clients: int, batches_per_epoch: int) -> float:
        """Return the passes over the training data after this many server steps and used embeddings."""
        return rounds / batches_per_epoch if self.together else embeddings_used / (clients * batches_per_epoch)

    def messages(self, clients: int) -> int:
        """Return about how many messages a round takes."""
        return clients * (1 + clients if self.to_peers else 2)
