"""The learning plane of a party: what it holds, its named models, and how it makes operations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

from vflsim.errors import RunError
from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Handle, Operation, check_kept, finite_loss, nothing
from vflsim.learning.learners.graphs import KeptGraph
from vflsim.learning.learners.inputs import PartyParts
from vflsim.learning.learners.joint import PartyStack
from vflsim.learning.learners.party_model import PartyModel, descend
from vflsim.learning.learners.releases import AS_THEY_ARE, Blinder, Release, Releases, Rows as ReleasedRows
from vflsim.learning.models.build import seeded
from vflsim.learning.optimizers import Optimizer
from vflsim.learning.privacy.blinding import KEY_BYTES
from vflsim.learning.states import State, as_state, from_state, named, of_modules, tensors_in, under
from vflsim.streams import party_name, torch_seed
from vflsim.vocabulary.on_demand import Tensor, nn, torch

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=PartyModel)
LearnerT = TypeVar("LearnerT", bound="PartyLearner")
"""The learner of a node, for code that is generic in it."""


class PartyLearner:
    """Makes the operations of one party. Subclass it: give it models, and a method for each operation.

    An operation reads the party's own state and the handles in its ``inputs``, nothing else. Making an operation
    changes nothing: ``run`` changes weights and ``kept``, when a value is needed; ``commit`` does bookkeeping on
    indices, when the operation completes in virtual time, and again when a resumed run repeats its timing.

    ``kept`` is what the party remembers between operations beside its models, by name: tensors, numbers, texts, and
    lists and mappings of these. Checkpoints keep it. A resumed run in which any other attribute is not as before is
    refused: ``run`` has changed it (``watch``).

    Example, a client that takes three local steps a round::

        class Local(PartyLearner):
            def __init__(self, held, build, rule):
                super().__init__(held)
                self.embedding = self.add_model("embedding", build, rule)

            def local_steps(self, batch, target):
                def run():
                    for _ in range(3):
                        difference = self.embedding(self.x(batch)) - target.value.value
                        self.descend(difference.square().mean(), self.embedding)

                cost = lambda: 3 * self.embedding.training_flops(len(batch))
                return self.operation("local_steps", run, None, inputs=[target.value], cost=cost, counts="update")
    """

    def __init__(self, held: PartyParts) -> None:
        self.held, self.party, self.dtype = held, held.party, held.dtype
        self.models: dict[str, PartyModel] = {}
        self.graphs: dict[str, KeptGraph] = {}
        self.kept: dict[str, Any] = {}
        self.releases: Releases | None = None
        if held.mechanism is not None:
            self.releases = Releases(held.mechanism, held.seed, held.party, len(self.features("train")))
        self.blinder: Blinder | None = None
        if held.blinded_sum is not None and held.party in held.blinded_sum.clients:
            self.blinder = Blinder(held.blinded_sum, held.seed, held.party)
        self.stack: PartyStack | None = None
        """The clients that this one is computed together with, if any, and its place among them."""
        self.place = 0

    # --- what it holds ----------------------------------------------------------------------------------------------

    def features(self, split: Split) -> Tensor:
        """Return all features of a split, (rows, *feature_shape). Raises ``RunError`` if the party holds none."""
        return _held(self.held.features, "features", self.party)[split]

    def labels(self, split: Split) -> Tensor:
        """Return all labels of a split, as the task takes them. Raises ``RunError`` if the party holds none."""
        return _held(self.held.labels, "labels", self.party)[split]

    def x(self, batch: Batch) -> Tensor:
        """Return the features of a training batch, (rows, *feature_shape)."""
        features = self.features("train")
        return features[batch.tensor(features.device)]

    def y(self, batch: Batch) -> Tensor:
        """Return the labels of a training batch."""
        labels = self.labels("train")
        return labels[batch.tensor(labels.device)]

    # --- its models -------------------------------------------------------------------------------------------------

    def add_model(
        self, name: str, build: Callable[[], nn.Module], rule: Optimizer, inputs: tuple[int, ...] | None = None
    ) -> PartyModel:
        """Add a model whose initial weights follow from the seed, the party and, but for the first model, the name.

        ``inputs`` is the shape of a row of its input; left out, that of the party's features.
        """
        purpose = f"weights/{name}" if self.models else "weights"
        seed = torch_seed(self.held.seed, self.party, purpose)
        factory = partial(seeded, build, seed, self.dtype, self.held.device)
        shape = self.features("train").shape[1:] if inputs is None else inputs
        return self.own(PartyModel(name, factory, rule, shape, self.dtype, inputs is not None, build))

    def own(self, model: ModelT) -> ModelT:
        """Add a model that has been set up elsewhere."""
        if model.name in self.models or "." in model.name:
            raise RunError(f"a model cannot be called {model.name!r}", allowed="a new name without dots")
        self.models[model.name] = model
        return model

    def add_graph(
        self, name: str, function: Callable[..., Tensor], *models: PartyModel, features: bool = True
    ) -> KeptGraph:
        """Add a forward pass that waits for its gradient: ``function(x, *received)`` through ``models``.

        ``x`` is the batch's features; with ``features=False``, or at a party without features, ``function`` takes
        ``received`` alone.
        """
        x_of = self.x if features and self.held.features is not None else None
        self.graphs[name] = KeptGraph(x_of, function, models)
        return self.graphs[name]

    @property
    def model(self) -> nn.Module:
        """The module of the party's first model: its only one, in split training."""
        return next(iter(self.models.values())).module

    def weights(self) -> dict[str, Tensor]:
        """Return what a run saves: ``<parameter>``, or ``<model>.<parameter>`` where there are several models."""
        return of_modules({name: model.module for name, model in self.models.items()})

    def outlines(self) -> dict[str, Tensor]:
        """Return ``weights`` without their values, on the meta device wherever a model can be made there."""
        return of_modules({name: model.outline for name, model in self.models.items()})

    def load_weights(self, weights: State) -> None:
        """Load what ``weights`` returned. Raises ``RuntimeError``, from PyTorch, if they are those of other models."""
        for name, model in self.models.items():
            model.module.load_state_dict(weights if len(self.models) == 1 else under(name, weights))

    @property
    def parameters(self) -> int:
        """The number of weights of all models."""
        return sum(model.parameters for model in self.models.values())

    @property
    def nbytes(self) -> int:
        """Bytes of features and of tensors kept, for estimates of memory."""
        tensors = [*(self.held.features or {}).values(), *tensors_in(self.kept)]
        return sum(tensor.nbytes for tensor in tensors)

    # --- operations -------------------------------------------------------------------------------------------------

    def promise(self, *shape: int, dtype: torch.dtype | None = None) -> Handle[Tensor]:
        """Return a handle for a tensor that an operation will compute; of the party's dtype unless given."""
        return Handle(shape, dtype or self.dtype)

    def operation(
        self,
        kind: str,
        run: Callable[[], None],
        result: T,
        *,
        inputs: Iterable[Handle[Any]] = (),
        promises: Iterable[Handle[Any]] | None = None,
        rows: int = 0,
        units: float | None = None,
        cost: Callable[[], float] | None = None,
        seconds: float | None = None,
        begin: Callable[[], None] = nothing,
        commit: Callable[[], Any] | None = None,
        counts: Literal["round", "update"] | None = None,
    ) -> Operation[T]:
        """Make an operation of this party. ``run`` must set every handle in ``result``, and may read ``inputs``.

        ``result`` is what ``node.compute`` returns: a handle, a tuple, list or mapping of handles, or None. Name the
        handles in ``promises`` where it is anything else. An operation of kind ``evaluate`` runs in evaluation mode and
        without gradients, all others in training mode. ``cost`` counts FLOPs, when a compute model asks;
        ``units`` is the work in mini-batches: unless given, rows ÷ batch of ``evaluate``, 1 of all others. ``seconds``
        is what it takes by a table, whatever the compute model says. ``counts``
        makes its completion a ``round`` (``commit`` then returns ``StepFacts``, as ``Staleness.complete`` does) or an
        ``update`` of weights.
        """
        promised = tuple(_handles(result) if promises is None else promises)
        evaluates = kind == "evaluate"
        if units is None:
            units = rows / self.held.batch if evaluates and rows else 1.0

        def checked() -> None:
            for model in self.models.values():
                if evaluates or model.made:
                    model.module.train(not evaluates)
            with torch.set_grad_enabled(not evaluates):
                run()
            for handle in promised:
                check_kept(handle, kind)

        return Operation(
            kind,
            self.party,
            checked,
            result,
            nbytes=sum(handle.nbytes for handle in promised),
            units=units,
            rows=rows,
            cost=None if cost is None else lambda *_: cost(),
            seconds=seconds,
            begin=begin,
            commit=commit,
            counts=counts,
            inputs=tuple(inputs),
            promises=promised,
        )

    def descend(self, loss: Tensor, *models: PartyModel) -> float:
        """Take one step of each of ``models`` down the gradient of ``loss``, and return the loss.

        Leaves that require gradients have theirs in ``.grad`` afterwards. Raises ``NonFiniteError``.
        """
        value = finite_loss(loss.detach())
        descend([loss], [None], models)
        return value

    def leaf(self, handle: Handle[Tensor]) -> Tensor:
        """Return a copy of a received tensor that collects its gradient in ``.grad``."""
        return handle.value.detach().clone().requires_grad_()

    def release(self, kind: str, rows: Batch | ReleasedRows) -> Release:
        """Return what bounded embeddings of training ``rows`` go through before others see them: noise, then masks.

        Give ``release.begin`` and ``release.commit`` to the operation, promise ``release.dtype``, and call
        ``release(h)`` when it runs. Only rows given as a ``Batch`` of the run's own sequences can count as sampled from
        all rows, and are blinded.
        """
        if self.releases is None and self.blinder is None:
            return AS_THEY_ARE
        return Release(self.releases, kind, rows, self.blinder)

    def bounded(self, h: Tensor) -> Tensor:
        """Bound embeddings row by row, where there is a mechanism."""
        return h if self.releases is None else self.releases.mechanism.bounded(h)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Return the task's loss of predictions for a training batch, with a graph."""
        return _held(self.held.task, "task", self.party).loss(prediction, self.y(batch))

    def scores(self, prediction: Tensor, split: Split) -> dict[str, float]:
        """Return the loss and the task's metrics of predictions for all rows of a split."""
        task, target = _held(self.held.task, "task", self.party), self.labels(split)
        return task.scores(prediction, target)

    def draw_secrets(self) -> None:
        """Have secrets of the operating system's generator in place of those that follow from the public seed.

        A live run calls it once, before the party does anything. Weights depend on them where a mechanism adds noise.
        """
        if self.releases is not None:
            self.releases.draw_privately()
        if self.blinder is not None:
            self.blinder.private = os.urandom(KEY_BYTES)

    # --- being interrupted ------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Return what the party has learnt and remembers, by name: the tensors themselves (``learning.states``).

        Models of a party in a stack are in the stack's state.
        """
        state = {} if self.releases is None else named("releases", self.releases.state())
        state |= {} if self.blinder is None else named("blinder", self.blinder.state())
        if self.stack is None:
            for name, model in self.models.items():
                state |= named(f"model.{name}", model.state())
            for name, graph in self.graphs.items():
                state |= named(f"graph.{name}", graph.state())
        return state | as_state(self.kept)

    def load(self, state: State) -> None:
        """Restore what ``state`` returned. Graphs are made anew, from the same weights."""
        if self.releases is not None:
            self.releases.load(under("releases", state))
        if self.blinder is not None:
            self.blinder.load(under("blinder", state))
        for name, model in self.models.items():
            model.load(under(f"model.{name}", state))
        for name, graph in self.graphs.items():
            graph.load(under(f"graph.{name}", state))
        self.kept = from_state(state)

    def under_way(self) -> dict[str, Tensor]:
        """Return what another process needs beside ``state`` to take this one's place in a live run, by name.

        These are secrets, and what is made and not yet dealt with.
        """
        return {} if self.blinder is None else named("blinder", self.blinder.secrets())

    def unchanging(self) -> dict[str, Tensor]:
        """Return what belongs to ``under_way`` and does not change once it is there, however large: it is kept once."""
        return {}

    @property
    def serves_once(self) -> bool:
        """Whether what it sends is masked, so that another process must go on from its very latest state."""
        return self.blinder is not None

    def take_up(self, under_way: State, send: Callable[[Any], None]) -> None:
        """Take up what ``under_way`` and ``unchanging`` returned, after ``load``.

        ``send`` puts a message's tensors through the codec, as sending it would, and sends nothing.
        """
        if self.blinder is not None:
            self.blinder.take_up(under("blinder", under_way))

    def let_go(self) -> None:
        """Give large memory back: the run is over."""
        self.graphs.clear()
        self.kept.clear()


def _held(what: T | None, name: str, party: int) -> T:
    if what is None:
        raise RunError(f"{party_name(party)} holds no {name}", remedy="use a party that holds them (partition, labels)")
    return what


def _handles(result: Any) -> Iterator[Handle[Any]]:
    if isinstance(result, Handle):
        yield result
    elif isinstance(result, Mapping):
        yield from result.values()
    elif isinstance(result, tuple | list):
        yield from result
