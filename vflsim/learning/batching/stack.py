"""Stacks clients of one architecture, so that identical operations run as one batched call."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakSet

from vflsim.errors import NonFiniteError
from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import LOCAL, RECEIVED, Operation, check_finite, placed
from vflsim.learning.learners.inputs import ByEmbeddings, EmbedWork, LocalWork, Rows, StackedFeatures, StepWork
from vflsim.learning.learners.joint import PartyStack
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.optimizers import STACKED
from vflsim.learning.states import named, under
from vflsim.vocabulary.on_demand import Tensor, torch, without_gradients

_PIECE = 2**20
"""Bytes of a layer's output that are computed at once."""


def pieces_of(parameters: Sequence[Tensor], clients: int, rows: int) -> list[slice]:
    """Cut a number of clients so that the widest layers of a piece take ``_PIECE`` bytes; not on other devices."""
    first = parameters[0]
    widest = max(max(parameter.shape[1:]) for parameter in parameters)
    each = max(1, _PIECE // (rows * widest * first.itemsize)) if first.device.type == "cpu" else clients
    return [slice(begin, begin + each) for begin in range(0, clients, each)]


def those_at(places: Sequence[int], count: int, parameters: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the parameters of those at ``places`` (ascending) among ``count``, (len(places), …) each."""
    if len(places) == count:
        return parameters
    if len(places) == 1:
        return [parameter[places[0] : places[0] + 1] for parameter in parameters]
    index = torch.tensor(places, device=parameters[0].device)
    return [parameter.index_select(0, index) for parameter in parameters]


@dataclass(frozen=True, slots=True, eq=False)
class StackKernel:
    """A function that runs equal operations of a stack's clients together, each for the same number of rows."""

    run: Callable[[Sequence[Operation[Any]]], None]


Backward: TypeAlias = Callable[[Tensor], Sequence[Tensor]]
"""Maps ∂L/∂h to ∇θ, (G, …) a parameter, at the weights of the forward pass."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A forward pass: the clients' embeddings ``h`` for their rows, or their sum, and its gradients ``back``."""

    places: Sequence[int]
    rows: Sequence[Rows]
    h: Tensor
    back: Backward


class Joint:
    """h_m of the clients at ``places`` of a stack for the same ``rows``: each by itself, or only their sum.

    Nothing is computed before it is needed. Invariant: the embeddings are those of the weights at the time of making;
    the stack calls ``settle`` before its weights move.
    """

    def __init__(self, stack: Stack, places: tuple[int, ...], rows: Rows) -> None:
        self.stack, self.places, self.rows = stack, places, rows
        self.weights: list[Tensor] | None = None
        """The weights to embed with, if the stack's have moved since."""
        self._each: Tensor | None = None
        stack.unsettled.add(self)

    def of(self, place: int) -> Tensor:
        """Return the embedding of one of the clients, (rows, width)."""
        if self._each is None:
            self._each = self.stack.embeddings(self.places, [self.rows] * len(self.places), self._parameters())
        return self._each[self.places.index(place)]

    def total(self, places: Sequence[int]) -> Tensor:
        """Return Σ h_m over ``places``, some of its own: (rows, width)."""
        return self.stack.total(places, self.rows, self._parameters())

    def settle(self) -> None:
        """Keep a copy of the weights: they are about to move."""
        self.weights = [parameter.clone() for parameter in self.stack.parameters]

    def _parameters(self) -> Sequence[Tensor]:
        return self.stack.parameters if self.weights is None else self.weights


class Stack(PartyStack):
    """S clients of one architecture, rule and mechanism; client ``place`` is ``learners[place]``.

    Each of ``parameters`` has the shape (S, …). The learners' models are views of them; a narrower client's model is a
    view of a part, and the rest stays zero. If ``joint``, training needs only the sum of the embeddings, and if
    ``joint_evaluation``, evaluation does; then no client's embedding is computed by itself.

    If ``keeps_graph``, the forward graph is kept. The next step reuses it when exactly the same clients step; otherwise
    it recomputes the forward pass with the same parameters.

    Invariants: only a client's own steps change its parameters. Which clients are computed together follows from the
    given operations, and changes results only within rounding.
    """

    def __init__(
        self, learners: Sequence[PartyLearner], features: StackedFeatures, joint: bool, joint_evaluation: bool
    ) -> None:
        self.learners, self.features = learners, features
        self.parameters = self._side_by_side()
        rule = next(iter(learners[0].models.values())).rule
        self.optimizer = STACKED[type(rule)](rule, self.parameters)
        self.unsettled: WeakSet[Joint] = WeakSet()
        """The joints that need copies of the parameters before they move."""
        self.mechanism, self.joint, self._joint_evaluation = learners[0].held.mechanism, joint, joint_evaluation
        self._kernels: dict[tuple[str, int | Split, Hashable], StackKernel] = {}
        self._graph: Graph | None = None
        self._joint_graph: Graph | None = None
        for place, learner in enumerate(learners):
            learner.stack, learner.place = self, place

    def kernel(self, kind: str, rows: int | Split, alike: Hashable = None) -> StackKernel:
        """Return the kernel for operations of a kind, on so many rows or on a whole split, that agree in ``alike``.

        For a ``local_step`` that is the gradient by its embeddings.
        """
        key = kind, rows, alike
        if key not in self._kernels:
            self._kernels[key] = StackKernel(
                partial(self._step_locally, alike) if kind == "local_step" else self._runner(kind)
            )
        return self._kernels[key]

    @property
    def keeps_graph(self) -> bool:
        """Whether gradients need the intermediate results of the forward pass."""
        return True

    @abstractmethod
    def _side_by_side(self) -> list[Tensor]:
        """Stack the parameters of all clients, (S, …) each, and make those of their models views of the stack."""

    @abstractmethod
    def through(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Backward]:
        """(G, rows, features) → (G, rows, width) with the parameters (G, …) of the same clients, and the way back."""

    def gradients(self, places: Sequence[int], batches: Sequence[Batch], received: Tensor) -> Sequence[Tensor]:
        """∇θ_m of the clients at ``places``, (G, …) a parameter, for ∂ℓ/∂h_m of their batches, (G, rows, width)."""
        graph = self._graph
        if graph is None or graph.places != places or not all(map(same, graph.rows, batches)):
            graph = self._graph_of(places, batches)
        return graph.back(received)

    def joint_gradients(self, batch: Batch, received: Tensor) -> Sequence[Tensor]:
        """∇θ_m of every client for the same batch and the same ∂ℓ/∂h_m, (rows, width)."""
        count = len(self.learners)
        return self.gradients(range(count), [batch] * count, received.expand(count, *received.shape))

    def backward(self, parameters: Sequence[Tensor], x: Tensor) -> Backward:
        """The way back of ``through`` alone."""
        return self.through(parameters, x)[1]

    def totals(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Backward]:
        """Σ_m h_m in each of R runs with the parameters (R S, …), (R, rows, width), and the way back.

        ``x`` are the same rows of all clients of a run, (R, rows, S · features).
        """
        raise NotImplementedError

    def total(self, places: Sequence[int], rows: Rows, parameters: Sequence[Tensor]) -> Tensor:
        """Σ h_m of the clients at ``places`` for the same rows, (rows, width)."""
        return self.embeddings(places, [rows] * len(places), parameters).sum(0)

    @without_gradients
    def embeddings(self, places: Sequence[int], rows: Sequence[Rows], parameters: Sequence[Tensor]) -> Tensor:
        """h_m of the clients at ``places``, each for its own rows (of one length): (G, rows, width)."""
        return self._bounded(self.through(self._of(places, parameters), self._x(places, rows))[0])

    # --- being interrupted ------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Return what the clients have learnt and remember, by name: the tensors themselves."""
        return {
            **{f"parameter.{n}": parameter for n, parameter in enumerate(self.parameters)},
            **named("optimizer", self.optimizer.state()),
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned. This restores the clients' models, which are views of the parameters."""
        for n, parameter in enumerate(self.parameters):
            parameter.copy_(state[f"parameter.{n}"])
        self.optimizer.load(under("optimizer", state))

    # --- kernels ----------------------------------------------------------------------------------------------------

    def _runner(self, kind: str) -> Callable[[Sequence[Operation[Any]]], None]:
        if kind == "client_step":
            return self._step
        joint = {"embed": self.joint, "evaluate": self._joint_evaluation}.get(kind, False)
        return self._embed_jointly if joint else self._embed

    def _embed(self, operations: Sequence[Operation[Any]]) -> None:
        work: list[EmbedWork] = [operation.work for operation in operations]
        places, rows = [each.place for each in work], [each.rows for each in work]
        try:
            h = self.embedded(work[0].steps, places, rows)
        except NonFiniteError:
            for operation, place, index in zip(operations, places, rows, strict=True):
                with placed(operation):  # find the client whose rows they were
                    self.embeddings([place], [index], self.parameters)
            raise
        for n, (operation, each) in enumerate(zip(operations, work, strict=True)):
            if each.release.plain:
                operation.result.set(h[n])
                continue
            with placed(operation):
                operation.result.set(each.release(h[n]))

    def embedded(self, steps: bool, places: Sequence[int], rows: Sequence[Rows]) -> Tensor:
        """h_m of the clients at ``places`` (G, rows, width), kept for gradients where they are to step on it."""
        if not (self.keeps_graph and steps):
            return self.embeddings(places, rows, self.parameters)
        self._graph = self._graph_of(places, rows)
        return self._graph.h

    def _embed_jointly(self, operations: Sequence[Operation[Any]]) -> None:
        together: list[list[Operation[Any]]] = []
        for operation in operations:
            if not together or together[-1][0].work.rows != operation.work.rows:
                together.append([])
            together[-1].append(operation)
        for alike in together:
            joint = Joint(self, tuple(operation.work.place for operation in alike), alike[0].work.rows)
            for operation in alike:
                operation.result.share(joint, operation.work.place)

    def _step(self, operations: Sequence[Operation[Any]]) -> None:
        work: list[StepWork] = [operation.work for operation in operations]
        received = [one.received.value for one in work]
        self.descend([each.place for each in work], [each.batch for each in work], received, operations)

    def descend(
        self,
        places: Sequence[int],
        batches: Sequence[Batch],
        received: Sequence[Tensor],
        operations: Sequence[Operation[Any]] = (),
    ) -> None:
        """Step the clients at ``places``, each on its batch, along ∂ℓ/∂h_m, (rows, width) each.

        The ``operations`` are named by ``NonFiniteError``; without any, gradients are finite.
        """
        if self.joint and len(places) == len(self.learners) and _all_one(received) and _all_equal(batches):
            checked(received[0][None], operations[:1])
            gradients = self.joint_gradients(batches[0], received[0])
        else:
            gradients = self.gradients(places, batches, checked(torch.stack(list(received)), operations))
        self.move(places, gradients)

    def _step_locally(self, gradient: Any, operations: Sequence[Operation[Any]]) -> None:
        """Step a few clients at a time, so that their layers' outputs stay in the processor's cache."""
        work: list[LocalWork] = [operation.work for operation in operations]
        places = [each.place for each in work]
        parameters, x = self._of(places, self.parameters), self._x(places, [each.batch for each in work])
        gradients: list[Sequence[Tensor]] = []
        for piece in pieces_of(self.parameters, len(places), x.shape[1]):
            values = [[handle.value for handle in each.received] for each in work[piece]]
            received = [joined(tensors) for tensors in zip(*values, strict=True)]
            weights = [parameter[piece] for parameter in parameters]
            gradients.append(self.local_gradients(gradient, weights, x[piece], received, operations[piece]))
        self.move(places, [torch.cat(each) for each in zip(*gradients, strict=True)])

    def local_gradients(
        self,
        gradient: ByEmbeddings,
        parameters: Sequence[Tensor],
        x: Tensor,
        received: Sequence[Tensor],
        operations: Sequence[Operation[Any]],
    ) -> Sequence[Tensor]:
        """∇θ_m L of a local objective for the clients of ``operations``, from ∂L/∂h = ``gradient(h, *received)``."""
        h, back = self.through(parameters, x)
        return back(checked(gradient(h, *received), operations, LOCAL))

    def move(self, places: Sequence[int], gradients: Sequence[Tensor]) -> None:
        """Step the clients at ``places`` along their ``gradients``, after all that needs their present weights."""
        for joint in self.unsettled:
            joint.settle()
        self.unsettled.clear()
        self.optimizer.step(places, gradients)
        self._graph = self._joint_graph = None

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _graph_of(self, places: Sequence[int], rows: Sequence[Rows]) -> Graph:
        h, back = self.through(self._of(places, self.parameters), self._x(places, rows))
        if self.mechanism is None:
            return Graph(places, rows, h, back)
        leaf = h.detach().requires_grad_()  # ``back`` may read h
        bounded = self._bounded(leaf)
        through_bound = partial(torch.autograd.grad, bounded, leaf)
        return Graph(places, rows, bounded.detach(), lambda received: back(through_bound(received)[0]))

    def _x(self, places: Sequence[int], rows: Sequence[Rows]) -> Tensor:
        """The features of some clients, each for its own rows: (G, rows, features)."""
        first = rows[0]
        if _all_equal(rows):
            every = self.features.same_rows(first)
            x = every.view(len(every), len(self.learners), -1).transpose(0, 1)
            return x if len(places) == len(self.learners) else x[list(places)]
        batches = [each for each in rows if isinstance(each, Batch)]
        assert len(batches) == len(rows), "whole splits are evaluated one at a time"
        return self.features.rows_of(places, batches)

    def _of(self, places: Sequence[int], parameters: Sequence[Tensor]) -> Sequence[Tensor]:
        return those_at(places, len(self.learners), parameters)

    def _bounded(self, h: Tensor) -> Tensor:
        if self.mechanism is None:
            return h
        return self.mechanism.bounded(h.reshape(-1, h.shape[-1])).view(h.shape)


def _all_equal(rows: Sequence[Rows]) -> bool:
    return all(same(each, rows[0]) for each in rows)


def same(one: Rows, other: Rows) -> bool:
    """Return whether both are the same rows."""
    return one is other or one == other


def _all_one(tensors: Sequence[Tensor]) -> bool:
    return all(tensor is tensors[0] for tensor in tensors)


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors side by side, (G, …): one that all share is not copied."""
    return tensors[0].expand(len(tensors), *tensors[0].shape) if _all_one(tensors) else torch.stack(list(tensors))


def checked(gradients: Tensor, operations: Sequence[Operation[Any]], what: str = RECEIVED) -> Tensor:
    """Return the gradients of operations side by side. Raises ``NonFiniteError`` on the CPU.

    On other devices the check would have to wait for the device, and the next loss shows the error, too. One sum is
    enough: it is not finite if any of its terms is not.
    """
    if operations and gradients.device.type == "cpu" and not torch.isfinite(gradients.sum()):
        for operation, gradient in zip(operations, gradients, strict=True):
            with placed(operation):
                check_finite(gradient, what)
    return gradients
