"""The learners of plain split training: a model at every client, and one on top of their embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, cast

from vflsim.learning.batches import Split
from vflsim.learning.batching.kernels import stack_clients
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.learners.inputs import KeptValue
from vflsim.learning.learners.joint import PartyDropout
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.server import ServerLearner, ServerParts
from vflsim.learning.models.build import Draft, seeded
from vflsim.learning.models.client import ClientModel, ModuleClient
from vflsim.learning.models.server import ModuleServer, ServerModel
from vflsim.learning.models.shapes import TableShape
from vflsim.setting.resolved import Setting
from vflsim.streams import SERVER, torch_seed
from vflsim.vocabulary.on_demand import Tensor, nn, torch

ServerT = TypeVar("ServerT", bound=PartyLearner, covariant=True)
ClientT = TypeVar("ClientT", bound=PartyLearner, covariant=True)


Stacking: TypeAlias = Callable[[Setting, "Learners[Any, Any]"], list[str]]
"""Computes clients of one architecture together; describes the clients that cannot be stacked, with reasons."""


@dataclass(frozen=True, slots=True)
class Learners(Generic[ServerT, ClientT]):
    """The learning plane of one run: the server's learner, and the participants' in client order.

    Example::

        class Resting(Synchronous):
            kind: Literal["resting"] = "resting"

            def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
                clients = {client: ClientLearner(client_parts(setting, client, seed)) for client in setting.clients}
                return Learners(ServerLearner(server_parts(setting, seed)), clients)


        sorted(Resting().learners(setting, seed=0).clients)  # [1, 2, 3, 4]
    """

    server: ServerT
    clients: Mapping[int, ClientT]
    stacking: Stacking | None = None
    """Stacks the clients that a protocol has made; see ``stack``."""
    lazy_values: tuple[type[KeptValue], ...] = ()
    """The types of lazy values in their handles. Checkpoints save how to compute them, not the values."""

    @property
    def split(self) -> bool:
        """Whether these are the learners of plain split training."""
        if isinstance(self.clients, ClientsMade):
            return self.clients.kind is ClientLearner
        return all(type(learner) is ClientLearner for learner in self.clients.values())

    def stack(self, setting: Setting, table: bool) -> list[str]:
        """Compute clients of one architecture together. Describe the clients that cannot be stacked, with reasons.

        ``table``: the server keeps the latest embedding of every row.
        """
        if self.stacking is not None:
            return self.stacking(setting, self)
        if self.split:
            return stack_split_learners(setting, cast(SplitLearners, self), table)
        return ["clients with learners of their own are computed one by one"] if len(self.clients) > 1 else []


SplitLearners: TypeAlias = Learners[ServerLearner, ClientLearner]


class ClientsMade(Mapping[int, ClientT]):
    """Learners by client. Each is made when it is asked for: a run without training asks for one of each sort."""

    def __init__(self, kind: type[PartyLearner], clients: Sequence[int], make: Callable[[int], ClientT]) -> None:
        self.kind = kind
        """The type of all of them."""
        self._make = make
        self._made: dict[int, ClientT | None] = dict.fromkeys(clients)

    def __getitem__(self, client: int) -> ClientT:
        learner = self._made[client]
        if learner is None:
            learner = self._made[client] = self._make(client)
        return learner

    def __iter__(self) -> Iterator[int]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def split_learners(setting: Setting, seed: int, table: bool = False, reference: bool = False) -> SplitLearners:
    """Make the learners of plain split training.

    ``table``: the server keeps the latest embedding of every row; ``reference``: the clients' FLOPs are the server's.

    Example::

        sorted(split_learners(setting, seed=0).clients)  # [1, 2, 3, 4]
    """
    clients = split_clients(setting, seed)
    beside = _flops_of(setting, clients) if reference else None
    return Learners(ServerLearner(server_parts(setting, seed, table, beside)), clients)


def split_clients(setting: Setting, seed: int) -> ClientsMade[ClientLearner]:
    """Return the clients of plain split training.

    Example::

        split_clients(setting, seed=0)[2].width  # 6
    """
    return ClientsMade(
        ClientLearner, setting.clients, lambda client: ClientLearner(client_parts(setting, client, seed))
    )


def linear_heads(setting: Setting, learners: Learners[Any, Any]) -> dict[int, Tensor]:
    """Return the rows of a linear server's weight that belong to each client's embedding, (embedding, outputs).

    Raises ``ValueError`` if the server does not join embeddings by ``concat``, or is not linear.
    """
    top = learners.server.top.module if isinstance(learners.server, ServerLearner) else None
    if setting.aggregate.kind != "concat" or not isinstance(top, nn.Linear):
        raise ValueError(
            f"clients have no linear heads with models.aggregate: {setting.aggregate.kind} and models.server: "
            f"{setting.server_model.kind}; allowed: concat and linear"
        )
    parts = torch.split(top.weight.detach().T, list(setting.joined_widths))
    return dict(zip(setting.clients, parts[-len(setting.clients) :], strict=True))


def draft_of(model: ClientModel | ServerModel, *shapes: Any) -> Callable[[], nn.Module]:
    """Return what builds a model for these shapes: a ``Draft`` unless its code is a user's."""
    return partial(model.build, *shapes) if isinstance(model, ModuleClient | ModuleServer) else Draft(model, shapes)


def client_parts(setting: Setting, client: int, seed: int) -> ClientParts:
    """Return the parts of a client's learner.

    Example::

        client_parts(setting, client=2, seed=0).embedding  # 6
    """
    model, shape = setting.models[client - 1], setting.data.shapes[client - 1]
    draft = draft_of(model, shape)
    weights = torch_seed(seed, client, "weights")
    return ClientParts(
        party=client,
        features=setting.data.features[client - 1],
        build=partial(seeded, draft, weights, setting.dtype, setting.device),
        draft=draft,
        optimizer=setting.optimizer_of(client),
        embedding=model.embedding,
        batch=setting.batch,
        mechanism=setting.mechanism,
        blinded_sum=setting.blinded_sum,
        seed=seed,
        coded=isinstance(shape, TableShape),
        present=setting.data.present_at(client),
    )


def server_parts(
    setting: Setting, seed: int, table: bool = False, beside: Callable[[str, int], float] | None = None
) -> ServerParts:
    """Return the parts of the server's learner; ``beside`` counts FLOPs of clients that the server computes, too.

    Example::

        server_parts(setting, seed=0, table=True).clients  # (1, 2, 3, 4)
    """
    draft = draft_of(setting.server_model, setting.server_inputs, setting.data.outputs)
    weights, rate = torch_seed(seed, SERVER, "weights"), setting.training.party_dropout
    return ServerParts(
        clients=setting.clients,
        widths=setting.widths,
        labels=setting.data.labels,
        build=partial(seeded, draft, weights, setting.dtype, setting.device),
        draft=draft,
        optimizer=setting.optimizer_of(SERVER),
        aggregate=setting.bound_aggregate,
        task=setting.data.task,
        batch=setting.batch,
        dtype=setting.dtype,
        table=table,
        active=_active_parts(setting, seed),
        beside=beside,
        blinded_sum=setting.blinded_sum,
        present=setting.present,
        dropout=PartyDropout(rate, seed, setting.active_model is not None) if rate else None,
    )


def _active_parts(setting: Setting, seed: int) -> ClientParts | None:
    """Return the parts that embed the server's own features; None if it holds none."""
    model, features = setting.active_model, setting.data.active
    if model is None or features is None:
        return None
    weights = torch_seed(seed, SERVER, "weights/embedding")
    draft = draft_of(model, setting.data.active_shape)
    return ClientParts(
        party=SERVER,
        features=features,
        build=partial(seeded, draft, weights, setting.dtype, setting.device),
        draft=draft,
        optimizer=setting.optimizer_of(SERVER),
        embedding=model.embedding,
        batch=setting.batch,
    )


def stack_split_learners(setting: Setting, learners: SplitLearners, table: bool) -> list[str]:
    """Compute clients of one architecture together; describe the clients that cannot be stacked, with reasons.

    With a ``table``, the server keeps the sums of its rows. Where parties may drop out, it needs each embedding.
    """
    if table:
        learners.server.sums_rows = True
    return stack_clients(
        learners.clients,
        {client: setting.models[client - 1] for client in learners.clients},
        setting.data.joint,
        {client: setting.data.columns[client - 1] for client in learners.clients},
        setting.aggregate,
        table or setting.training.party_dropout > 0,
    )


def _flops_of(setting: Setting, clients: Mapping[int, ClientLearner]) -> Callable[[str, int], float]:
    """Return a function that counts all clients' FLOPs in a server operation, by its kind and number of rows."""

    def flops(kind: str, rows: int) -> float:
        known: dict[object, float] = {}  # alike clients are counted once
        total = 0.0
        for client in clients:
            alike = setting.alike(client)
            if alike not in known:
                learner = clients[client]
                known[alike] = learner.flops("embed", rows)
                known[alike] += learner.flops("client_step", rows) if kind == "server_step" else 0.0
            total += known[alike]
        return total

    return flops


# --- prediction -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerPrediction:
    """The server's prediction from fresh embeddings, as in evaluation. It is differentiable in every embedding.

    ``predict`` takes embeddings of the same rows in party order, (rows, width) each, the server's own first if it holds
    features, and returns (rows, outputs). ``own`` embeds the server's features of all rows of a split. ``modules`` are
    the server's models, in evaluation mode whenever these are called.

    Example::

        ServerPrediction(predict=lambda embeddings: sum(embeddings), own=None, modules=()).own is None  # True
    """

    predict: Callable[[Sequence[Tensor]], Tensor]
    own: Callable[[Split], Tensor] | None
    modules: tuple[nn.Module, ...]


def prediction_of(
    server: PartyLearner, predict: Callable[[Sequence[Tensor]], Tensor], own: Callable[[Split], Tensor] | None = None
) -> ServerPrediction:
    """Return the prediction of a server with these functions."""
    return ServerPrediction(predict, own, tuple(model.module for model in server.models.values()))


def split_prediction(learners: Learners[Any, Any]) -> ServerPrediction:
    """Return the prediction of plain split training. Raises ``ValueError`` for another server.

    Example::

        predict = split_prediction(split_learners(setting, seed=0)).predict
        predict([torch.zeros(5, 6, dtype=torch.float64)] * 4).shape  # torch.Size([5, 10])
    """
    server = learners.server
    if not isinstance(server, ServerLearner):
        raise ValueError(
            "its server is not that of split training; allowed: protocols that say how they predict from embeddings "
            "(Protocol.prediction)"
        )
    return prediction_of(server, server.predict, None if server.embedding is None else server.own_embedding)
