"""PubSub-VFL (Liu et al., NeurIPS 2025): workers of each party, and queues of embeddings and gradients between them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import reduce
from itertools import count
from operator import or_
from typing import Any, ClassVar, Literal

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.server import ServerLearner, ServerParts
from vflsim.learning.states import State, named, under
from vflsim.protocols.base import ROUNDS, CheckContext, Protocol, Traits, replace
from vflsim.setting import ClientsMade, Learners, Setting, client_parts, server_parts, split_clients
from vflsim.streams import party_name
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.vocabulary.quantities import Count, PositiveSeconds
from vflsim.world.messages import Embedding, Gradient, Message
from vflsim.world.node import ClientNode, Node, ServerNode


class Workers(Part):
    """How many workers a party has.

    Example: ``{active: 2, passive: 4}``
    """

    active: Count = 2
    """Workers of the server, w_a."""
    passive: Count = 2
    """Workers of each client, w_p."""


class PubSubVfl(Protocol):
    """Every party has workers, each with a processor and a replica of the party's models. A broker keeps two queues.

    Passive worker: embeds its party's next batch, and publishes h_m under the batch's id. Before it embeds another one,
    it steps on the gradient of its oldest batch, if that is in the queue, or if ``capacity`` ÷ w_p of its batches have
    none. If its replica has moved since it embedded the batch, it embeds the batch anew for the step.
    Active worker: takes the next id of its party's list, waits for the embeddings with that id, steps, and publishes
    ∂ℓ/∂h_m under the id. If they are not there after ``deadline``, the id goes to the end of the list, and a row to the
    table ``late``. The list has the ``capacity`` oldest batches, but for those that a worker has taken.
    Parameter server of each party: after every ``average_every`` steps of the party all its workers are done with
    theirs, and each replica becomes the mean of all. Evaluations see the latest mean, and a run saves it.

    A party's workers share its link, mini-batches and laws of times; their upload delays overlap. Averaging takes no
    sampled time, and no bytes; by FLOPs it costs an addition for each weight and replica. A party draws its power of
    computing while any of its workers computes. The table ``workers`` says who embedded or stepped on which batch. With
    one worker each and ``capacity: 1`` this is ``synchronous``. Several clients, which the paper does not have, are
    passive parties for all of which an active worker waits.

    Not in what we have read of the paper (its abstract, and summaries): what a full queue does (publishers wait here),
    who takes a gradient (who embedded the batch), where the broker is (at the server, so a message crosses one link),
    and what becomes of optimisers' memory (it stays with a replica, and so do buffers of integers). Left out: an
    interval that changes in the course of training, and the choice of numbers of workers from profiles of the parties.

    Example: ``{kind: pubsub_vfl, workers: {active: 2, passive: 4}, capacity: 8, deadline: 2 s, average_every: 20}``
    """

    kind: Literal["pubsub_vfl"] = "pubsub_vfl"
    workers: Workers = Workers()
    """The workers of the server, and of each client."""
    capacity: Count = 4
    """How many embeddings of a client may be without a gradient that it has stepped on: the length of its queue."""
    deadline: PositiveSeconds | None = None
    """How long an active worker waits for the embeddings of a batch before it puts the batch off. None: for ever."""
    average_every: Count = 10
    """The steps of a party between two averages of its replicas."""
    traits: ClassVar[Traits] = replace(
        ROUNDS,
        rounds_correspond=False,
        refuses_live="the workers of a party would share the processor of one process, and embed batches in any order",
    )

    async def server(self, node: ServerNode) -> None:
        """Active party."""
        node.in_any_order("embedding")
        ids, later = deque(range(self.capacity)), count(self.capacity)
        queue: dict[int, list[Message]] = defaultdict(list)
        replicas = replicas_of(node.learner)

        async def work(place: int, worker: Node[Any], period: Iterator[int]) -> None:
            for _ in period:
                k, embeddings = await self.subscribed(worker, ids, queue)
                step = await self.computed(worker, place, k, replicas[place].server_step(embeddings))
                ids.append(next(later))
                for embedding in embeddings:
                    await worker.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=k))

        await self.in_periods(node, self.workers.active, work)

    async def subscribed(
        self, worker: Node[Any], ids: deque[int], queue: dict[int, list[Message]]
    ) -> tuple[int, list[Message]]:
        """Active worker: return an id with all its embeddings, once they are in the queue; put off what is too late."""
        while True:
            k = ids.popleft()
            missing = [m for m in worker.clients if m not in {message.sender for message in queue[k]}]
            queue[k] += await worker.gather("embedding", senders=missing, round=k, timeout=self.deadline)
            if len(queue[k]) == len(worker.clients):
                return k, queue.pop(k)
            ids.append(k)
            worker.record("late", batch=k, missing=len(worker.clients) - len(queue[k]))
            for client in missing:
                await worker.back(client)

    async def client(self, node: ClientNode) -> None:
        """Passive party."""
        node.in_any_order("gradient")
        workers, batches, replicas = self.workers.passive, count(), replicas_of(node.learner)
        published: list[deque[tuple[Batch, int]]] = [deque() for _ in range(workers)]

        async def work(place: int, worker: Node[Any], period: Iterator[int]) -> None:
            learner, mine = replicas[place], published[place]
            most = self.capacity // workers + (place < self.capacity % workers)
            for step in period:
                while not (gradients := await _gradient(worker, mine, most)):
                    await worker.activated()
                    batch = worker.batch(next(batches))
                    h = await self.computed(worker, place, batch.index, learner.embed(batch))
                    mine.append((batch, step))
                    upload = worker.upload("server", Embedding(batch, h, round=batch.index))
                    if most > 1:
                        worker.start(upload)
                    else:
                        await upload
                batch, since = mine.popleft()
                along = learner.client_step if since == step else learner.step_again
                await self.computed(worker, place, batch.index, along(batch, gradients[0]))

        await self.in_periods(node, workers, work)

    async def in_periods(self, node: Node[Any], workers: int, work: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """Party: let the workers take ``average_every`` steps between them, average, and so on."""
        if workers == 1:
            return await work(0, node, count())
        nodes = [node, *(node.worker() for _ in range(workers - 1))]
        for first in count(0, self.average_every):
            period = iter(range(first, first + self.average_every))
            await node.together(*[work(place, worker, period) for place, worker in enumerate(nodes)])
            await node.compute(node.learner.average())

    async def computed(self, worker: Node[Any], place: int, batch: int, operation: Operation[Any]) -> Any:
        """Worker: compute, and note it in the table ``workers`` if its party has others."""
        result = await worker.compute(operation)
        if isinstance(worker.learner, ReplicatedParty):
            worker.record("workers", worker=place + 1, batch=batch, what=operation.kind)
        return result

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make parties with a replica for each worker; those with one worker are of plain split training."""
        active, passive, parts = self.workers.active, self.workers.passive, server_parts(setting, seed)
        server = ServerLearner(parts) if active == 1 else SubscribingParty(parts, active)
        many = ClientsMade(PublishingParty, setting.clients, lambda m: PublishingParty(setting, m, seed, passive))
        return Learners(server, split_clients(setting, seed) if passive == 1 else many)

    def extra_bytes(self, setting: Setting) -> int:
        """Count replicas' weights and gradients."""
        made = self.learners(setting, 0)
        parties = (made.server, *made.clients.values())
        weights: int = sum(each.parameters * len(getattr(each, "replicas", ())) for each in parties)
        return 2 * setting.dtype.itemsize * weights

    def facts(self) -> dict[str, Any]:
        """Return how many computations of a party may overlap."""
        return {"workers": (self.workers.active, self.workers.passive)}

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` if workers would have no batch, or if a client may lose what it has published."""
        super().check(context)
        most = max(self.workers.active, self.workers.passive)
        if self.capacity < most:
            raise ValueError(f"capacity: {self.capacity}, fewer batches than workers; allowed: {most} or more")
        if lost := () if context.setting is None else context.setting.crashing:
            what = f"{party_name(lost[0])} would lose in a crash which batches it has published (interrupted: lost)"
            raise ValueError(f"{what}; allowed: interrupted: resumed")

    def describe(self, setting: Setting) -> str:
        """Say who works beside whom, and what is put off."""
        workers = f"{self.workers.active} active and {self.workers.passive} passive workers on one link a party"
        late = "waits for every batch" if self.deadline is None else f"puts a batch off after {self.deadline:g} s"
        return f"{workers}; {self.capacity} batches in a queue; the server {late}"


async def _gradient(worker: Node[Any], published: Sequence[tuple[Batch, Any]], most: int) -> list[Message]:
    """Passive worker: return the gradient of its oldest batch if it is here or must be awaited, else nothing."""
    oldest = published[0][0].index if published else 0
    if len(published) == most:
        return [await worker.recv("gradient", round=oldest)]
    return worker.arrived("gradient", round=oldest) if published else []


class ReplicatedParty(PartyLearner):
    """A party whose workers train ``replicas``. Its own models are the latest mean of theirs."""

    replicas: Sequence[Any]

    def average(self) -> Operation[None]:
        """Make every replica the mean of all, its floating-point buffers included."""

        def run() -> None:
            for name, model in self.models.items():
                modules = [model.module, *(replica.models[name].module for replica in self.replicas)]
                for own, *theirs in zip(*(module.state_dict().values() for module in modules), strict=True):
                    if own.is_floating_point():
                        mean: Tensor = torch.stack(theirs).mean(0)
                        for each in (own, *theirs):
                            each.copy_(mean)
            for graph in (graph for replica in self.replicas for graph in replica.graphs.values()):
                graph.forget()

        cost = float(self.parameters * len(self.replicas))
        return self.operation("average", run, None, units=0.0, cost=lambda: cost)

    def state(self) -> dict[str, Tensor]:
        """Return what the party and its replicas have learnt."""
        theirs = (named(f"replica-{n}", replica.state()) for n, replica in enumerate(self.replicas))
        return reduce(or_, theirs, super().state())

    def load(self, state: State) -> None:
        """Restore what ``state`` returned."""
        super().load(state)
        for n, replica in enumerate(self.replicas):
            replica.load(under(f"replica-{n}", state))


class SubscribingParty(ReplicatedParty, ServerLearner):
    """A server with workers. Ages count the steps of all of them."""

    def __init__(self, parts: ServerParts, workers: int) -> None:
        super().__init__(parts)
        self.replicas = [ServerLearner(parts) for _ in range(workers)]
        for replica in self.replicas:
            replica.staleness = self.staleness


class PublishingParty(ReplicatedParty, ClientLearner):
    """A client with workers. Releases of a row count whoever makes them."""

    def __init__(self, setting: Setting, client: int, seed: int, workers: int) -> None:
        parts = client_parts(setting, client, seed)
        super().__init__(parts)
        self.replicas = [ClientLearner(parts) for _ in range(workers)]
        for replica in self.replicas:
            replica.releases = self.releases


def replicas_of(learner: PartyLearner) -> Sequence[Any]:
    """Return a learner for each worker of a party: itself for its only one."""
    return learner.replicas if isinstance(learner, ReplicatedParty) else [learner]
