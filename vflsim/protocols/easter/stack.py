"""Parties of EASTER that are alike, computed together: their embedding nets and their prediction nets side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from vflsim.errors import RunError
from vflsim.learning.batches import Batch, Split
from vflsim.learning.batching.kernels import KERNELS, cut
from vflsim.learning.batching.products import layers_of, side_by_side, through_pieces
from vflsim.learning.batching.stack import (
    Backward,
    Graph,
    Stack,
    StackKernel,
    checked,
    joined,
    pieces_of,
    same,
    those_at,
)
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.inputs import StackedFeatures, StepWork
from vflsim.learning.learners.joint import PartyStack
from vflsim.learning.models.client import ClientModel
from vflsim.learning.models.server import ModuleServer, ServerModel
from vflsim.learning.models.shapes import TableShape
from vflsim.learning.optimizers import STACKED, Optimizer
from vflsim.learning.states import named, under
from vflsim.protocols.easter.learning import ActiveParty, EasterParty, PredictWork
from vflsim.setting import Learners, Setting
from vflsim.vocabulary.on_demand import Tensor, nn, torch


class TwoNetStack(PartyStack):
    """S parties with the same two nets: a stack of ``embeddings``, and the prediction nets, ``parameters`` (S, …) each.

    A forward pass of the prediction nets is kept for the step that follows. A step of other parties, or after a
    checkpoint, repeats it from the global embedding that each has received last.
    """

    def __init__(self, parties: Sequence[EasterParty], embeddings: Stack) -> None:
        self.parties, self.embeddings = parties, embeddings
        modules, rule = [party.predictor.module for party in parties], parties[0].predictor.rule
        self._layers, self.parameters = layers_of(modules[0]), side_by_side(modules)
        self.optimizer = STACKED[type(rule)](rule, self.parameters)
        self._received: dict[int, tuple[Batch, Tensor]] = {}
        self._graph: Graph | None = None
        self._kernels: dict[tuple[str, int | Split], StackKernel] = {}
        for place, party in enumerate(parties):
            party.stack, party.place = self, place

    def kernel(self, kind: str, rows: int | Split, alike: Hashable = None) -> StackKernel:
        """Return the kernel for an operation of a party on so many rows, or on a split."""
        if kind in ("embed", "embed_split"):
            return self.embeddings.kernel("embed", rows)
        runners: dict[str, Callable[[Sequence[Operation[Any]]], None]] = {
            "predict": self._predict, "predict_split": self._predict_split, "client_step": self._step,
        }  # fmt: skip
        key = kind, rows
        if key not in self._kernels:
            self._kernels[key] = StackKernel(runners[kind])
        return self._kernels[key]

    # --- being interrupted ------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Return both nets of all parties, the optimisers' memory, and what was received and not stepped on yet."""
        state = {f"parameter.{n}": parameter for n, parameter in enumerate(self.parameters)}
        state |= named("optimizer", self.optimizer.state()) | named("embeddings", self.embeddings.state())
        for place, (batch, value) in self._received.items():
            state |= {f"received.{place}": value, f"ids.{place}": batch.tensor()}
            state[f"batch.{place}"] = torch.tensor([batch.index, batch.origin])
        return state

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        for n, parameter in enumerate(self.parameters):
            parameter.copy_(state[f"parameter.{n}"])
        self.optimizer.load(under("optimizer", state))
        self.embeddings.load(under("embeddings", state))
        self._graph, self._received = None, {}
        for place, value in under("received", state).items():
            index, origin = state[f"batch.{place}"].tolist()
            batch = Batch(index, state[f"ids.{place}"].clone().numpy(), origin)
            self._received[int(place)] = batch, value.clone()

    # --- kernels ----------------------------------------------------------------------------------------------------

    def _predict(self, operations: Sequence[Operation[Any]]) -> None:
        work: list[PredictWork] = [operation.work for operation in operations]
        places, values = [each.place for each in work], [each.received.value for each in work]
        batches = [each.rows for each in work if isinstance(each.rows, Batch)]
        prediction, back = self._through(places, values)
        self._graph = Graph(places, batches, prediction, back)
        for operation, place, batch, value, output in zip(operations, places, batches, values, prediction, strict=True):
            operation.result.set(output)
            self._received[place] = batch, value

    def _predict_split(self, operations: Sequence[Operation[Any]]) -> None:
        work: list[PredictWork] = [operation.work for operation in operations]
        predictions, _ = self._through([each.place for each in work], [each.received.value for each in work])
        for operation, output in zip(operations, predictions, strict=True):
            operation.result.set(output)

    def _step(self, operations: Sequence[Operation[Any]]) -> None:
        """Step the prediction nets along ∂L/∂R, and the embedding nets along ∂L/∂E_k = (∂L/∂E) / C."""
        work: list[StepWork] = [operation.work for operation in operations]
        places, batches = [each.place for each in work], [each.batch for each in work]
        gradient = checked(torch.stack([each.received.value for each in work]), operations)
        *by_parameters, slope = self._graph_of(places, batches).back(gradient)
        received = checked(slope / self.parties[0].parties, operations)
        by_embeddings = self.embeddings.gradients(places, batches, received)
        self.optimizer.step(places, by_parameters)
        self.embeddings.move(places, by_embeddings)
        self._graph = None
        for place in places:
            del self._received[place]

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _graph_of(self, places: Sequence[int], batches: Sequence[Batch]) -> Graph:
        """Return the latest forward pass of these parties, or a new one. Raises ``RunError`` for other batches."""
        for place, batch in zip(places, batches, strict=True):
            if place not in self._received or self._received[place][0] != batch:
                what = f"a gradient came for batch {batch.index}, of which no forward pass is kept"
                raise RunError(what, remedy="compute the forward pass of that batch last before its backward pass")
        graph = self._graph
        if graph is None or graph.places != places or not all(map(same, graph.rows, batches)):
            graph = Graph(places, batches, *self._through(places, [self._received[place][1] for place in places]))
        return graph

    def _through(self, places: Sequence[int], values: Sequence[Tensor]) -> tuple[Tensor, Backward]:
        some = those_at(places, len(self.parties), self.parameters)
        pieces = pieces_of(self.parameters, len(places), len(values[0]))
        return through_pieces(self._layers, some, joined(values), pieces, by_input=True)


def stack_parties(setting: Setting, learners: Learners[ActiveParty, EasterParty]) -> list[str]:
    """Compute parties with the same two nets and the same rule together; describe the others, with reasons."""
    learners.server.losses_together = True
    groups: dict[tuple[ClientModel, ServerModel, Optimizer], list[int]] = {}
    others: Counter[str] = Counter()
    for client in learners.clients:
        model, predictor, rule = setting.models[client - 1], setting.predictor_of(client), setting.optimizer_of(client)
        if why := _why_alone(setting, client, learners.clients[client]):
            others[f"{model.kind} and {predictor.kind} parties one by one: {why}"] += 1
        else:
            groups.setdefault((model, predictor, rule), []).append(client)
    columns = {client: setting.data.columns[client - 1] for client in learners.clients}
    for (model, *_), clients in groups.items():
        kind = KERNELS[type(model)]
        assert not isinstance(kind, str)
        for some in cut(clients, {client: columns[client].stop - columns[client].start for client in clients}):
            parties = [learners.clients[client] for client in some]
            features = StackedFeatures(setting.data.joint, [columns[client] for client in some])
            TwoNetStack(parties, kind(parties, features, False, False))
    return [f"{count} {what}" for what, count in others.items()]


def _why_alone(setting: Setting, client: int, party: EasterParty) -> str:
    """Say why no stack computes a party; an empty text if one does."""
    from vflsim.learning.models.layers import ACTIVATIONS

    if type(party) is not EasterParty:
        return "their learners are not vflsim's own"
    why = KERNELS[type(setting.models[client - 1])]
    if isinstance(why, str):
        return why
    if isinstance(setting.data.shapes[client - 1], TableShape):
        return "no stack reads codes of categories"
    if type(setting.optimizer_of(client)) not in STACKED:
        return "their optimiser is not vflsim's own"
    if isinstance(setting.predictor_of(client), ModuleServer):
        return "a user's module may treat rows in ways that no stack can know"
    known = nn.Linear, *ACTIVATIONS.values()
    if not all(type(layer) in known for layer in layers_of(party.predictor.module)):
        return "no stack computes the layers of their prediction net"
    return ""
