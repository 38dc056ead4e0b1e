"""CELU-VFL: parties step on cached exchanges while they wait for the next one (Fu et al., PVLDB 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from vflsim.analysis.findings import Finding
from vflsim.analysis.stages import Unanalysable
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle, Operation, check_loss
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.inputs import Received, in_client_order
from vflsim.learning.learners.joint import Used
from vflsim.learning.learners.server import ServerLearner, ServerStep
from vflsim.protocols.base import ROUNDS, Protocol, Traits, replace
from vflsim.protocols.capabilities import ActsByHand
from vflsim.recurrences import Activated, Acts, ClientWork, Recurrence, ServerWork, TimedWorld
from vflsim.recurrences.caching import CachingRounds
from vflsim.setting import Learners, Setting, server_parts, split_clients
from vflsim.tracing.acts import embedding as embedding_of, trip
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.vocabulary.quantities import Count, Quantity
from vflsim.world.messages import Embedding, Gradient, Message
from vflsim.world.node import ClientNode, Node

T = TypeVar("T")


@dataclass(slots=True)
class _Entry(Generic[T]):
    value: T
    exchange: int
    used_at: int
    """The number of the step that used it last."""
    uses: int = 1


class MessageCache(Generic[T]):
    """What a party holds of its latest exchanges: at most ``size`` (W) entries, each for at most ``uses`` (R) steps.

    The step of the exchange itself is the first use. An entry may be used again when W − 1 other steps have been taken
    since, the one longest unused first; an entry older than W · R exchanges is dropped. FedBCD's Q steps on an exchange
    are a cache with W = 1 and R = Q.

    Example::

        cache = MessageCache[str](size=1, uses=3)
        cache.put("batch 0", exchange=0)
        cache.take(), cache.take(), cache.take()  # ('batch 0', 'batch 0', None)
    """

    def __init__(self, size: int, uses: int) -> None:
        self.size, self.uses = size, uses
        self._entries: list[_Entry[T]] = []
        self._steps = 0

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._entries)

    def put(self, value: T, exchange: int) -> None:
        """Add what was exchanged in exchange number ``exchange``, of which a step has been taken just now.

        Drop entries that are used up or too old, and the oldest of too many.
        """
        oldest = exchange - self.size * self.uses
        self._entries = [entry for entry in self._entries if entry.exchange >= oldest]
        if self.uses > 1:
            self._entries.append(_Entry(value, exchange, self._steps))
        self._steps += 1
        del self._entries[: -self.size]

    def take(self) -> T | None:
        """Return what the next step uses, and count the use; None if no entry may be used yet."""
        free = [entry for entry in self._entries if self._steps - entry.used_at >= self.size]
        if not free:
            return None
        entry = min(free, key=lambda each: each.used_at)
        entry.used_at, entry.uses, self._steps = self._steps, entry.uses + 1, self._steps + 1
        if entry.uses == self.uses:
            self._entries.remove(entry)
        return entry.value


def weights_of(now: Tensor, cached: Tensor, least: float) -> Tensor:
    """Return each row's weight: cos(now, cached) where it is at least ``least``, else 0; (…, rows, 1).

    Both are (…, rows, width). The cosine with a row of zeros is 0. Fu et al. 2022, Sec. 4.2.
    """
    cosine = torch.nn.functional.cosine_similarity(now, cached, dim=-1).unsqueeze(-1)
    return torch.where(cosine >= least, cosine, torch.zeros_like(cosine))


@dataclass(frozen=True, slots=True)
class Weighted:
    """∂L/∂h of a client's local step: the cached gradient, weighted by the similarity of the embeddings."""

    least: float

    def __call__(self, h: Tensor, cached: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient by the present embeddings ``h``; all are (…, rows, width)."""
        return gradient * weights_of(h, cached, self.least)


def cached_client_step(
    client: ClientLearner, batch: Batch, h: Handle[Tensor], gradient: Received, least: float
) -> Operation[None]:
    """Step along a cached ``gradient``, as far as the embeddings are still like ``h``, those of the exchange."""
    flops = 6.0 * client.width * len(batch)  # three sums of products a row
    return client.local_step(batch, Weighted(least), [h, gradient.value], flops)


class CachingServer(ServerLearner):
    """Steps again on embeddings of earlier exchanges."""

    def cached_step(self, embeddings: Sequence[Received], step: ServerStep, least: float) -> Operation[None]:
        """Step on cached ``embeddings`` of one batch; ``step`` is the server step of their exchange.

        A row's loss is weighted by the cosine of ∂ℓ/∂h now and then, over the embeddings of all clients side by side,
        or 0 if it is below ``least``. The loss has to be a mean over rows. Raises ``NonFiniteError`` when it runs.
        """
        ordered = in_client_order(embeddings)
        cached = [step.gradient_for(message) for message in ordered]
        rows, batch = len(ordered[0].batch), ordered[0].batch

        def weighted(used: Used) -> Tensor:
            prediction = self.top(used.joined)
            loss = self.parts.task.loss(prediction, self.y(batch))
            check_loss(loss.detach())
            (by_prediction,) = torch.autograd.grad(loss, prediction, retain_graph=True)
            now = used.spread(torch.autograd.grad(prediction, used.leaves, by_prediction, retain_graph=True))
            then = torch.cat([handle.value for handle in cached], 1)
            weights = weights_of(torch.cat(list(now[len(now) - len(ordered) :]), 1), then, least)
            # A row's loss depends on that row of the prediction alone, so weighting ∂ℓ/∂prediction weights the losses.
            return (prediction * (by_prediction * weights)).sum()

        def run() -> None:
            self.step_on(self.inputs_of([(batch, ordered)], []), lambda _: None, weighted)

        inputs = [*(message.value for message in ordered), *cached]
        flops = self._cost("server_step", rows) + 6.0 * sum(self.parts.widths) * rows
        return self.operation("local_step", run, None, inputs=inputs, rows=rows, cost=lambda: flops)


async def while_waiting(
    node: Node, await_it: Callable[[], Coroutine[Any, Any, T]], next_operation: Callable[[], Operation[Any] | None]
) -> T:
    """Return what the coroutine that ``await_it`` makes gives; until it is there, compute one operation after another.

    ``next_operation`` makes the next one, or returns None when there is nothing to do. An operation under way
    when the coroutine ends is finished first.
    """
    results: list[T] = []

    async def wait() -> None:
        results.append(await await_it())

    async def work() -> None:
        while not results and (operation := next_operation()) is not None:
            await node.compute(operation)

    await node.together(wait(), work())
    return results[0]


Degrees = Annotated[float, Quantity(at_least=0, at_most=90)]


class OfClient(NamedTuple):
    """What a client caches of an exchange."""

    batch: Batch
    h: Handle[Tensor]
    gradient: Message


class OfServer(NamedTuple):
    """What the server caches of an exchange."""

    embeddings: Sequence[Message]
    step: ServerStep


class CeluVfl(ActsByHand, Protocol):
    """Synchronous rounds; while a party waits, it steps on exchanges of its cache, weighted row by row.

    The cache has the latest W exchanges, each for R steps, the one of the exchange included. A row's weight is the
    cosine of the angle between what was exchanged and what it would be now, or 0 beyond ``angle``: clients compare
    their embeddings, the server ∂ℓ/∂h. With R = 1 this is ``synchronous``.

    Example: ``{kind: celu_vfl, cache: 5, uses: 5, angle: 60}``
    """

    kind: Literal["celu_vfl"] = "celu_vfl"
    cache: Count = 5
    """W, the exchanges that a party keeps."""
    uses: Count = 5
    """R, the steps on each exchange, the first included."""
    angle: Degrees = 60.0
    """ξ as an angle in degrees: rows that have turned farther than this have no weight."""
    traits: ClassVar[Traits] = replace(ROUNDS, party_dropout=True)

    async def server(self, node: Node[CachingServer]) -> None:
        """Wait for all embeddings of the round and step on cached ones meanwhile; step; return the gradients."""
        cache = MessageCache[OfServer](self.cache, self.uses)

        def cached() -> Operation[Any] | None:
            entry = cache.take()
            return None if entry is None else node.learner.cached_step(entry.embeddings, entry.step, self.least)

        for k in node.rounds():
            gather = partial(node.gather, "embedding", senders=node.clients, round=k)
            embeddings = await while_waiting(node, gather, cached)
            step = await node.compute(node.learner.server_step(embeddings))
            cache.put(OfServer(embeddings, step), k)
            for embedding in embeddings:
                await node.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=k))

    async def client(self, node: ClientNode) -> None:
        """Embed and upload; step on cached exchanges until the gradient is here; step along it."""
        cache = MessageCache[OfClient](self.cache, self.uses)
        steps = 0

        def cached() -> Operation[Any] | None:
            nonlocal steps
            entry = cache.take()
            steps += entry is not None
            return None if entry is None else cached_client_step(node.learner, *entry, self.least)

        for k in node.rounds():
            await node.activated()
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            embedded_at = steps
            exchange = partial(self.exchange_of, node, Embedding(batch, h, round=k))
            gradient = await while_waiting(node, exchange, cached)
            moved = steps > embedded_at
            step = node.learner.step_again if moved else node.learner.client_step
            await node.compute(step(batch, gradient))
            cache.put(OfClient(batch, h, gradient), k)

    async def exchange_of(self, node: ClientNode, embedding: Embedding) -> Message:
        """Client: upload an embedding, and return its gradient."""
        await node.upload("server", embedding)
        return await node.recv("gradient", round=embedding.round)

    # --- facts that need no run --------------------------------------------------------------------------------

    @property
    def least(self) -> float:
        """The least cosine of a row that counts."""
        return 0.0 if self.angle == 90 else math.cos(math.radians(self.angle))

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the clients of split training, and a server that steps on cached embeddings."""
        return Learners(CachingServer(server_parts(setting, seed)), split_clients(setting, seed))

    def extra_bytes(self, setting: Setting) -> int:
        """Count the caches: embeddings and gradients of W batches, at the server and at the clients."""
        return 4 * self.cache * setting.batch * sum(setting.widths) * setting.dtype.itemsize if self.uses > 1 else 0

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the law of synchronous rounds. Raises Unanalysable if parties take steps on cached exchanges."""
        if self.uses > 1:
            raise Unanalysable("a message may find its receiver at a cached step, which is finished first")
        return super().closed_forms(setting)

    @property
    def vectorised_with(self) -> frozenset[str]:
        """Return what the recurrence knows besides."""
        return frozenset({"activation", "energy", "pauses", "sharing"})

    def acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
        """Return an embedding up, a gradient down, two kinds of steps along it, and steps on cached exchanges."""
        embed, up = embedding_of(clients, client, batch)
        serve, learner = server.server_step([up]), clients[client]
        down = Gradient(value=serve.result.gradient_for(up), round=0)
        cached = ClientWork(cached_client_step(learner, batch, embed.result, down, self.least))
        of_server = ServerWork(server.cached_step([up], serve.result, self.least))
        steps = ClientWork(learner.client_step(batch, down)), ClientWork(learner.step_again(batch, down))
        return Activated(), *trip(embed, up, serve, down), *steps, cached, of_server

    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence of rounds with steps on cached exchanges.

        It is by hand: how many of them a party takes depends on how long it waits, and a trace has no times.
        """
        return CachingRounds(world, self.cache, self.uses)

    def describe(self, setting: Setting) -> str:
        """Say how often exchanges are used."""
        return f"each party takes up to {self.uses - 1} more steps on each of its latest {self.cache} exchanges"
