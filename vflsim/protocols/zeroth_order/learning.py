"""Zeroth-order learners: random directions, estimates of gradients from losses along them, and their message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias

from vflsim.codecs.frame import ONLY
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation, check_finite, set_loss
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.joint import Used
from vflsim.learning.learners.releases import Release, Releases
from vflsim.learning.learners.server import ServerLearner, ServerParts, ServerStep
from vflsim.learning.privacy.mechanisms import Gaussian
from vflsim.protocols.fedbcd import HeldEmbedding
from vflsim.streams import SERVER, torch_seed
from vflsim.vocabulary.on_demand import Tensor, nn, torch
from vflsim.world.messages import Message

Law: TypeAlias = Literal["sphere", "gaussian"]


@dataclass(frozen=True, slots=True)
class Directions:
    """The losses that a client's step needs: at ``samples`` random directions, ``radius`` away.

    Directions of ``law`` follow from (``seed``, client, batch), so that whoever knows these can draw them again. Along
    their last axis, those of ``sphere`` have the norm 1, and those of ``gaussian`` independent normal elements.
    """

    radius: float
    samples: int
    law: Law
    seed: int

    def of(self, client: int, batch: Batch, like: Tensor) -> Tensor:
        """Return u_1 … u_q, each of the shape and dtype of ``like``: (samples, *shape)."""
        draw = torch.Generator().manual_seed(torch_seed(self.seed, client, f"directions/{batch.origin}/{batch.index}"))
        u = torch.randn(self.samples, *like.shape, generator=draw, dtype=like.dtype)
        if self.law == "sphere":
            u /= torch.linalg.vector_norm(u, dim=-1, keepdim=True)
        return u.to(like.device)

    def estimate(self, directions: Tensor, slopes: Tensor) -> Tensor:
        """Return φ/q Σ slope_i u_i: φ is the length of the last axis for ``sphere``, and 1 for ``gaussian``."""
        factor = directions.shape[-1] if self.law == "sphere" else 1
        total: Tensor = torch.tensordot(slopes, directions, 1)
        return total * (factor / self.samples)


@dataclass(slots=True, eq=False)
class LossDifferences(Message):
    """What the losses of a batch differ by along a client's directions: (samples,)."""

    kind: ClassVar[str] = "loss_differences"
    ordered: ClassVar[bool] = True
    rowless: ClassVar[frozenset[str]] = frozenset({ONLY})


# --- clients ----------------------------------------------------------------------------------------------------------


class OutputClient(ClientLearner):
    """Estimates ∂ℓ/∂h_m along directions of its embedding, and takes the chain rule from there through its model."""

    def __init__(self, parts: ClientParts, smoothing: Directions) -> None:
        super().__init__(parts)
        self.smoothing = smoothing

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        """Step along the estimate φ/(μ q) Σ δ_i u_i, (batch, embedding), from the differences received."""
        received: Handle[Tensor] = gradient.value

        def run() -> None:
            slopes = received.value / self.smoothing.radius
            like = torch.empty(len(batch), self.width, dtype=self.dtype, device=slopes.device)
            estimate = self.smoothing.estimate(self.smoothing.of(self.party, batch, like), slopes)
            if self.parts.present is not None:  # no loss depends on rows that the client lacks
                estimate *= self.parts.present["train"][batch.tensor(estimate.device)]
            self._uploaded.backward(batch, estimate)

        return self._stepping(run, batch, received)


class WeightClient(ClientLearner):
    """Uploads embeddings of perturbed weights side by side, and steps without a backward pass.

    They are those of θ_m, θ_m + μ u_1 … θ_m + μ u_q; ``two_sided``: of θ_m ± μ u_1 … θ_m ± μ u_q.
    """

    def __init__(self, parts: ClientParts, smoothing: Directions, two_sided: bool) -> None:
        super().__init__(parts)
        self.smoothing, self.two_sided = smoothing, two_sided
        self.passes = 2 * smoothing.samples if two_sided else 1 + smoothing.samples

    def embed(self, batch: Batch) -> Operation[Handle[Tensor]]:
        """Embed a training batch at all these weights: (batch, passes · embedding)."""
        release = self.release("embed", batch)
        result = self.promise(len(batch), self.passes * self.width)

        def run() -> None:
            self.embedding.train()
            with torch.no_grad():
                result.set(release(torch.cat([self._at(weights, batch) for weights in self._points(batch)], 1)))

        operation = self.operation("embed", run, result, rows=len(batch))
        operation.cost = lambda kind, rows: self.passes * self.flops(kind, rows)
        operation.begin, operation.commit = release.begin, release.commit
        return operation

    def client_step(self, batch: Batch, gradient: Received) -> Operation[None]:
        """Step along φ/q Σ slope_i u_i, from the differences received, of the batch's directions."""
        received: Handle[Tensor] = gradient.value

        def run() -> None:
            check_finite(received.value)
            slopes = received.value if self.two_sided else received.value / self.smoothing.radius
            directions = self.smoothing.of(self.party, batch, self._vector())
            parts = torch.split(self.smoothing.estimate(directions, slopes), self._sizes())
            for weight, part in zip(self.embedding.module.parameters(), parts, strict=True):
                weight.grad = part.view_as(weight)
            self.embedding.optimizer.step()
            self.embedding.optimizer.zero_grad()

        operation = self._stepping(run, batch, received)
        operation.cost = lambda *_: 2.0 * self.smoothing.samples * self.embedding.parameters
        return operation

    def _points(self, batch: Batch) -> list[Tensor]:
        weights = self._vector()
        steps = self.smoothing.radius * self.smoothing.of(self.party, batch, weights)
        if self.two_sided:
            return [weights + sign * step for step in steps for sign in (1, -1)]
        return [weights, *(weights + step for step in steps)]

    def _at(self, weights: Tensor, batch: Batch) -> Tensor:
        named = dict(self.embedding.module.named_parameters())
        parts = torch.split(weights, self._sizes())
        values = {name: part.view_as(w) for (name, w), part in zip(named.items(), parts, strict=True)}
        h: Tensor = torch.func.functional_call(self.embedding.module, values, (self.x(batch),))
        return h

    def _sizes(self) -> list[int]:
        return [weight.numel() for weight in self.embedding.module.parameters()]

    def _vector(self) -> Tensor:
        return nn.utils.parameters_to_vector([weight.detach() for weight in self.embedding.module.parameters()])


# --- servers ----------------------------------------------------------------------------------------------------------


class LossServer(ServerLearner):
    """Steps by first order on embeddings h_m; answers each with ℓ(h_m at direction i) − ℓ(h_m), all at the same θ_0.

    ``drawn``: the server draws the directions and adds μ u_i to h_m. Otherwise it gets all embeddings, h_m first.
    """

    def __init__(self, parts: ServerParts, smoothing: Directions, drawn: bool = False) -> None:
        super().__init__(parts)
        self.smoothing, self.drawn = smoothing, drawn
        self.passes = smoothing.samples
        """How many forward passes a step takes beside its own."""

    def promised(self, step: ServerStep, message: Received) -> Handle[Tensor]:
        """Promise the differences for ``message``: (samples,)."""
        return step.promise(message, self.dtype, (self.smoothing.samples,))

    def embedding_in(self, upload: Tensor, sender: int) -> Tensor:
        """Return h_m of an upload, (batch, embedding)."""
        return upload[:, : self._widths[self._place[sender]]]

    def answer(self, used: Used, message: Received, loss: Tensor) -> Tensor:
        """Return the differences to ``loss`` for ``message``, (samples,)."""
        points = self.points(message)
        losses = [self.parts.task.loss(self.prediction_at(used, message.sender, h), self.y(used.batch)) for h in points]
        return torch.stack(losses) - loss

    def points(self, message: Received) -> Sequence[Tensor]:
        """Return the embeddings at the directions, (batch, embedding) each."""
        upload: Tensor = message.value.value
        if self.drawn:
            return [*(upload + self.smoothing.radius * self.smoothing.of(message.sender, message.batch, upload))]
        return torch.split(upload, self._widths[self._place[message.sender]], 1)[1:]

    def prediction_at(self, used: Used, sender: int, h: Tensor) -> Tensor:
        """Predict for the batch of ``used`` with ``h`` in the place of the sender's embedding."""
        there = HeldEmbedding(sender, used.batch, Handle.of(h))
        fresh = [there if each.sender == sender else each for each in used.fresh]
        places = [self._place[each.sender] for each in fresh]
        return self.top(self._joining.used(used.batch, fresh, places, self.table).joined)

    def _run_step(
        self,
        groups: list[tuple[Batch, list[Received]]],
        arrivals: list[Received],
        promised: dict[int, Handle[Tensor]],
        loss: Handle[float],
        where: str,
    ) -> None:
        held = {
            id(each): HeldEmbedding(
                each.sender, each.batch, Handle.of(self.embedding_in(each.value.value, each.sender))
            )
            for each in arrivals
        }
        uploads: Mapping[Batch, list[Received]] = dict(groups)
        used = self.inputs_of(
            [(batch, [held[id(each)] for each in group]) for batch, group in groups], [*held.values()]
        )

        def loss_of(each: Used) -> Tensor:
            value = self.parts.task.loss(self.top(each.joined), self.y(each.batch))
            with torch.no_grad():
                for message in uploads[each.batch]:
                    promised[id(message)].set(self.answer(each, message, value.detach()))
            return value

        self.step_on(used, partial(set_loss, loss, where=where), loss_of)

    def _cost(self, kind: str, rows: int) -> float:
        beside = self.passes * self.top.forward_flops(rows) if kind == "server_step" else 0.0
        return super()._cost(kind, rows) + beside


class PrivateLossServer(LossServer):
    """Answers with slopes that ``noise`` bounds row by row, sums over the batch and perturbs, over the batch's rows.

    A row's slopes are (ℓ⁺ − ℓ⁻)/(2 μ) along its q directions. Embeddings come in pairs, h⁺ and h⁻, for whose mean the
    table and the server's step take h_m.
    """

    def __init__(self, parts: ServerParts, smoothing: Directions, noise: Gaussian) -> None:
        super().__init__(parts, smoothing)
        self.passes = 2 * smoothing.samples
        self.releases = Releases(noise, smoothing.seed, SERVER, len(parts.labels["train"]))

    def server_step(self, embeddings: Sequence[Received], refreshed: Sequence[Received] = ()) -> Operation[ServerStep]:
        """Take a step, and release the answers: each counts for every row of its batch."""
        operation = super().server_step(embeddings, refreshed)
        run, begin, commit, step = operation.run, operation.begin, operation.commit, operation.result
        released = [(each, Release(self.releases, "slopes", each.batch)) for each in embeddings]

        def begin_all() -> None:
            begin()
            for _, release in released:
                release.begin()

        def run_all() -> None:
            run()
            for message, release in released:
                answer = step.gradient_for(message)
                answer.set(release(answer.value) / len(message.batch))

        def commit_all() -> Any:
            for _, release in released:
                release.commit()
            return None if commit is None else commit()

        operation.begin, operation.run, operation.commit = begin_all, run_all, commit_all
        return operation

    def embedding_in(self, upload: Tensor, sender: int) -> Tensor:
        """Return the mean of the embeddings in an upload: h_m but for terms of order μ²."""
        return upload.reshape(len(upload), -1, self._widths[self._place[sender]]).mean(1)

    def answer(self, used: Used, message: Received, loss: Tensor) -> Tensor:
        """Return the sum over the rows of their bounded slopes, (samples,)."""
        pairs = torch.split(message.value.value, self._widths[self._place[message.sender]], 1)
        target = self.y(used.batch)
        each = torch.func.vmap(lambda prediction, label: self.parts.task.loss(prediction[None], label[None]))
        losses = [each(self.prediction_at(used, message.sender, h), target) for h in pairs]
        slopes = torch.stack(
            [
                (above - below) / (2 * self.smoothing.radius)
                for above, below in zip(losses[::2], losses[1::2], strict=True)
            ],
            1,
        )
        return self.bounded(slopes).sum(0)
