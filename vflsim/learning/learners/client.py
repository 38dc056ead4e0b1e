"""A client's side of split training: its features, its model, its optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vflsim.learning.batches import Batch, Split as Split
from vflsim.learning.execution.operations import LOCAL, Handle, Operation, check_finite
from vflsim.learning.learners.graphs import KeptGraph
from vflsim.learning.learners.inputs import ByEmbeddings, EmbedWork, LocalWork, PartyParts, Received, Rows, StepWork
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.party_model import PartyModel, descend
from vflsim.learning.learners.releases import Release, Rows as ReleasedRows
from vflsim.learning.optimizers import Optimizer
from vflsim.learning.privacy.base import Mechanism
from vflsim.learning.privacy.blinding import BlindedSum
from vflsim.vocabulary.on_demand import Tensor, nn, torch


def affine_layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers w_l u + b_l of a network, first to last; a polynomial is one layer.

    Raises ValueError for a network that is no chain of layers, or that does not end in an affine one.
    """
    from vflsim.learning.models.layers import PolynomialNetwork

    affine = nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d
    if isinstance(module, PolynomialNetwork):
        return [module]
    children = [*module] if isinstance(module, nn.Sequential) else [module]
    layers: list[nn.Module] = [child for child in children if isinstance(child, affine)]
    hidden = any(isinstance(each, affine) for child in children if child not in layers for each in child.modules())
    if not layers or hidden or children[-1] is not layers[-1]:
        raise ValueError(
            "noise at every layer needs a chain of layers (nn.Sequential) that ends in an affine one; allowed: linear, "
            "polynomial, mlp, cnn, lenet, and such modules; choose one, or the mechanism gaussian, which takes any"
        )
    return layers


@contextmanager
def perturbed(layers: Sequence[nn.Module], std: float, bits: Callable[[int], np.random.BitGenerator]) -> Iterator[None]:
    """Add Z_l ~ U[−√3 std, √3 std] to the output of layer l while the block runs; ``bits`` are those of layer l."""
    with ExitStack() as hooks:
        for number, layer in enumerate(layers, start=1):
            hooks.callback(layer.register_forward_hook(_adding(std, bits(number))).remove)
        yield


def _adding(std: float, bits: np.random.BitGenerator) -> Callable[..., Tensor]:
    def add(_layer: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        words = bits.random_raw(output.numel()) >> np.uint64(11)
        uniforms = torch.from_numpy((words.astype(np.float64) + 0.5) * 2.0**-52 - 1.0)  # within (−1, 1)
        return output + (math.sqrt(3) * std * uniforms).reshape(output.shape).to(output.device, output.dtype)

    return add


@dataclass(frozen=True, slots=True)
class ClientParts:
    """Everything that one process needs to play a client.

    ``features`` maps a split to a tensor (rows, *feature_shape). ``build`` makes the model with its initial weights,
    ``draft`` one whose weights are only counted. ``mechanism`` protects its embeddings before others see them, with
    noise drawn from ``seed``; in a ``blinded_sum`` it then blinds them. ``coded``: some features are categories' codes.
    ``present`` says which rows it holds, (rows, 1) by split; None: all. It uploads zeros for the others.
    """

    party: int
    features: Mapping[Split, Tensor]
    build: Callable[[], nn.Module]
    optimizer: Optimizer
    embedding: int
    batch: int
    mechanism: Mechanism | None = None
    blinded_sum: BlindedSum | None = None
    seed: int = 0
    draft: Callable[[], nn.Module] | None = None
    coded: bool = False
    present: Mapping[Split, Tensor] | None = None

    def model(self, name: str) -> PartyModel:
        """Return the model, to be made when it is first needed."""
        train = self.features["train"]
        return PartyModel(name, self.build, self.optimizer, train.shape[1:], train.dtype, draft=self.draft)


class ClientLearner(PartyLearner):
    """Makes a client's operations in split training: embed a batch, step along the gradient that comes back.

    The graph of the last embedding is kept until the model steps, so that a step costs one forward pass and uses the
    parameters of the upload. A mechanism bounds every embedding, and adds noise to those of training rows; gradients go
    through the bound, and the noise is a constant to them. Evaluation, which is not part of the protocol, is free of
    noise.

    Example::

        class Halving(ClientLearner):
            def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
                operation = super().client_step(batch, gradient)
                operation.units = 0.5  # a sampled compute time counts half
                return operation


        Halving(client_parts(setting, 1, seed=0)).party  # 1
    """

    def __init__(self, parts: ClientParts) -> None:
        train = parts.features["train"]
        super().__init__(
            PartyParts(
                party=parts.party,
                dtype=train.dtype,
                device=train.device,
                batch=parts.batch,
                seed=parts.seed,
                features=parts.features,
                mechanism=parts.mechanism,
                blinded_sum=parts.blinded_sum,
            )
        )
        self.parts, self.width = parts, parts.embedding
        self.embedding = self.own(parts.model("embedding"))
        self._uploaded = self._add_upload(self.embedding)

    def embed(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """Embed a training batch: h_m = f_m(x_m; θ_m), a handle of shape (batch, embedding).

            h = await node.compute(node.learner.embed(batch))

        A blinded one holds integers. Raises, when it runs, ``BudgetError`` for rows that have been released too often,
        and ``BlindingError`` for values that are too large to be blinded.
        """
        release = self.release("embed", batch)
        result: Handle[Tensor] = Handle((len(batch.ids), self.width), release.dtype or self.dtype)

        def run() -> None:
            result.set(release(self._uploaded.forward(batch)))

        return self._embedding("embed", run, result, batch, release, steps=True)

    def answer(self, batch: Batch, kind: str = "answer") -> Operation[Handle[Tensor]]:
        """Embed ``batch`` without a gradient to come, beside the step under way: a handle of (batch, embedding)."""
        release = self.release(kind, batch)
        result = self.promise(len(batch), self.width, dtype=release.dtype)

        def run() -> None:
            self.embedding.train()
            with torch.no_grad():
                result.set(release(self._h_of(batch)))

        return self._embedding(kind, run, result, batch, release)

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        """Step along the gradient received: θ_m ← θ_m − η ∇θ_m h_m ∂ℓ/∂h_m (VAFL Eq. 2b, 4a).

        ``gradient`` is the message that carries ∂ℓ/∂h_m, of shape (batch, embedding). Both factors are taken at the
        parameters of the upload. A protocol that embeds another batch before the gradient comes gets the gradient
        through a new forward pass at the present parameters. Raises ``NonFiniteError`` when it runs.

            gradient = await node.recv("gradient", round=k)
            await node.compute(node.learner.client_step(batch, gradient))
        """
        received: Handle[Tensor] = gradient.value

        def run() -> None:
            self._uploaded.backward(batch, received.value)

        return self._stepping(run, batch, received)

    def step_again(self, batch: Batch, gradient: Received) -> Operation[None]:
        """Take another step along the same gradient: a ``client_step`` with a forward pass, at the present parameters.

        θ_m ← θ_m − η ∇θ_m h_m ∂ℓ/∂h_m, of which only ∇θ_m h_m is new.
        """
        operation = self.client_step(batch, gradient)
        operation.cost = lambda kind, rows: self.flops("embed", rows) + self.flops(kind, rows)
        return operation

    def release(self, kind: str, rows: Batch | ReleasedRows) -> Release:
        """Return what embeddings of training ``rows`` go through; those of rows that the client lacks become zeros."""
        present = self.parts.present
        if present is None:
            return super().release(kind, rows)
        return Release(self.releases, kind, rows, self.blinder, present["train"])

    def embed_split(self, split: Split, kind: str = "evaluate") -> Operation[Handle[Tensor]]:
        """Embed every row of a split, in evaluation mode: a handle of shape (rows, embedding).

        ``kind`` is ``evaluate``, or names a release of training rows that a mechanism has to protect (``first_fill``).
        """
        features, evaluates = self.features(split), kind == "evaluate"
        result = self.promise(len(features), self.width)
        release = Release(None if evaluates else self.releases, kind, slice(None), present=self._present(split))

        def run() -> None:
            for model in self.models.values():
                model.module.eval()
            with torch.no_grad(), nullcontext() if evaluates else self._perturbed(kind):
                result.set(release(self._h(features)))

        operation = self._embedding(kind, run, result, split, release)
        operation.units, operation.waits_for_company = len(features) / self.parts.batch, evaluates
        return operation

    def local_step(
        self, batch: Batch, gradient: ByEmbeddings, received: Sequence[Handle[Tensor]], flops: float
    ) -> Operation[None]:
        """Take one step on a local objective L(h, …): θ_m ← θ_m − η ∇θ_m h_m ∂L/∂h_m, at the present parameters.

        ``gradient(h, *tensors)`` is ∂L/∂h for the tensors ``received``, counted as ``flops`` FLOPs. The embeddings do
        not go through the mechanism. A gradient that comes later for an embedding sent before goes through a new
        forward pass. Raises ``NonFiniteError`` when it runs.
        """

        def run() -> None:
            h = self.embedding(self.x(batch))
            by_h = gradient(h.detach(), *[handle.value for handle in received])
            check_finite(by_h, LOCAL)
            self._uploaded.forget()
            descend([h], [by_h], [self.embedding])

        operation = self._operation("client_step", run, None, len(batch))
        operation.cost = lambda *_: self.embedding.training_flops(len(batch)) + flops
        return self.stepping_locally(operation, batch, gradient, received)

    def stepping_locally(
        self, operation: Operation[None], batch: Batch, gradient: ByEmbeddings, received: Sequence[Handle[Tensor]]
    ) -> Operation[None]:
        """Make ``operation`` a local step, which clients with equal ``gradient`` take together."""
        operation.counts, operation.inputs = "update", tuple(received)
        if self.stack is not None:
            operation.kernel = self.stack.kernel("local_step", len(batch), gradient)
            operation.work = LocalWork(self.place, batch, received)
        return operation

    def flops(self, kind: str, rows: int) -> float:
        """Count the FLOPs of an operation on ``rows`` rows: the backward pass of a step, else the forward pass."""
        return (self.embedding.backward_flops if kind == "client_step" else self.embedding.forward_flops)(rows)

    # --- pieces -----------------------------------------------------------------------------------------------------

    @property
    def inner_layers(self) -> Sequence[nn.Module]:
        """The affine layers before the one whose output is uploaded. Raises ValueError (``affine_layers``)."""
        return affine_layers(self.embedding.module)[:-1]

    def _present(self, split: Split) -> Tensor | None:
        return None if self.parts.present is None else self.parts.present[split]

    def _h(self, features: Tensor) -> Tensor:
        return self.bounded(self.embedding(features))

    def _h_of(self, batch: Batch) -> Tensor:
        with self._perturbed(f"{batch.origin}/{batch.index}"):
            return self._h(self.x(batch))

    def _perturbed(self, rows: str) -> AbstractContextManager[None]:
        """Return a block with the mechanism's noise inside the network: for the same ``rows``, the same noise."""
        mechanism, releases = self.parts.mechanism, self.releases
        if mechanism is None or releases is None or not mechanism.inner_noise:
            return nullcontext()
        return perturbed(self.inner_layers, mechanism.inner_noise, partial(releases.inner_bits, rows=rows))

    def _add_upload(self, *models: PartyModel) -> KeptGraph:
        self.graphs["upload"] = KeptGraph(lambda batch: batch, self._h_of, models)
        return self.graphs["upload"]

    def _embedding(
        self,
        kind: str,
        run: Callable[[], None],
        result: Handle[Tensor],
        rows: Rows,
        release: Release,
        steps: bool = False,
    ) -> Operation[Handle[Tensor]]:
        operation = Operation(
            kind, self.party, run, result, nbytes=result.nbytes, rows=result.shape[0], cost=self.flops, inputs=(),
            promises=(result,),
        )  # fmt: skip
        if not release.plain:
            operation.begin, operation.commit = release.begin, release.commit
            operation.cost = lambda kind, count: self.flops(kind, count) + release.flops(count * self.width)
        if self.stack is not None:
            operation.kernel = self.stack.kernel(kind, rows if isinstance(rows, str) else len(rows), steps)
            operation.work = EmbedWork(self.place, rows, release, steps)
        return operation

    def _stepping(self, run: Callable[[], None], batch: Batch, received: Handle[Tensor]) -> Operation[None]:
        operation: Operation[None] = Operation(
            "client_step", self.party, run, None, rows=len(batch.ids), cost=self.flops, counts="update",
            inputs=(received,),
        )  # fmt: skip
        if self.stack is not None:
            operation.kernel = self.stack.kernel("client_step", len(batch))
            operation.work = StepWork(self.place, batch, received)
        return operation

    def _operation(self, kind: str, run: Callable[[], None], result: Any, rows: int) -> Operation[Any]:
        return Operation(kind, self.party, run, result, rows=rows, cost=self.flops, inputs=())
