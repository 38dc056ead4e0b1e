"""Synchronous split training: rounds that wait for all clients (VAFL Alg. 2, t = M) or for some; and the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from vflsim.analysis.afresh import ignoring
from vflsim.analysis.findings import Finding
from vflsim.analysis.lockstep import RoundLaws
from vflsim.protocols.base import REFERENCE, ROUNDS, CheckContext, Protocol, Traits, UnsuitableError, replace
from vflsim.protocols.blinded import agree_on_keys, blinds, of_all, relay_keys
from vflsim.protocols.capabilities import Vectorisable
from vflsim.recurrences import WITH_EVENTS, Recurrence, SynchronousRounds, TimedWorld
from vflsim.setting import Setting
from vflsim.vocabulary.expressions import Selection, others
from vflsim.vocabulary.quantities import Count, PositiveSeconds
from vflsim.world.messages import Embedding, Gradient, Message
from vflsim.world.node import ClientNode, Node, ServerNode


async def in_time(
    node: Node, k: int, fastest: int | None, deadline: float | None, forgoing: bool = False
) -> list[Message]:
    """Server: return the embeddings that round ``k`` uses: all, the ``fastest`` few, or those before a ``deadline``.

    The deadline is in seconds from now; if none has arrived by then, the round uses the next one that comes. With
    ``forgoing``, clients that crash are not waited for.
    """
    if fastest is not None:
        return await node.gather("embedding", count=fastest, senders=node.clients, round=k)
    arrived = await node.gather("embedding", senders=node.clients, round=k, timeout=deadline, forgoing=forgoing)
    return arrived or await node.gather("embedding", count=1, round=k)


class InTime(Vectorisable, Protocol):
    """Rounds that use all embeddings, the ``fastest`` few, or those before a ``deadline``."""

    kind: str
    """The name of this kind, as scenarios write it."""
    fastest: Count | None = None
    """Each round uses the first embeddings, this many."""
    deadline: PositiveSeconds | None = None
    """Each round uses the embeddings that arrive within this time (at least one)."""
    traits: ClassVar[Traits] = replace(ROUNDS, waits_for_all=False)

    @property
    def drops(self) -> bool:
        """Whether a round may end without the embeddings of some clients."""
        return self.fastest is not None or self.deadline is not None

    async def server(self, node: ServerNode) -> None:
        """Collect the embeddings that arrive in time; step; send all clients the end of the round."""
        await relay_keys(node)
        for k in node.rounds():
            arrived = await in_time(node, k, self.fastest, self.deadline, not self.drops and blinds(node))
            if embeddings := await of_all(node, k, arrived):
                step = await node.compute(node.learner.server_step(embeddings))
                used = {embedding.sender: step.gradient_for(embedding) for embedding in embeddings}
                dropped = [client for client in node.clients if client not in used]
                for client in [*used, *dropped]:
                    await node.send(client, Gradient(value=used.get(client), round=k))

    async def client(self, node: ClientNode) -> None:
        """Each round: embed, upload, step if the round used the embedding; then join the current round."""
        await agree_on_keys(node)
        for k in node.rounds(over="gradient"):
            await node.activated()
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            if gradient.value is not None:
                await node.compute(node.learner.client_step(batch, gradient))

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` if a round needs more clients than there are."""
        super().check(context)
        count = len(self.participants(context.clients, context.symbols))
        if self.fastest is not None and self.fastest > count:
            raise ValueError(f"fastest: {self.fastest} of {count} clients; allowed: 1 to {count}")

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the laws of synchronous rounds. Raises ``Unanalysable`` if they may leave a participant out."""
        return ignoring(RoundLaws(self, setting, by_hand=True), self.fastest, self.deadline)

    @property
    def vectorised_with(self) -> frozenset[str]:
        """Return what rounds know that wait for all participants."""
        return frozenset() if self.drops else WITH_EVENTS

    @property
    def trains(self) -> Literal["", "together", "own pace"]:
        """Return that all participants train on one batch, unless rounds end without some."""
        return "" if self.drops else "together"

    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence of rounds that wait for all participants, or that end without late ones.

        A trace does not tell a deadline, or that late clients finish their work before they join another round.
        """
        return SynchronousRounds(world, "finished", self.deadline)


class Ignore(InTime):
    """Synchronous rounds without the stragglers: exactly one of ``exclude``, ``fastest`` and ``deadline``.

    ``exclude``: these clients never take part. ``fastest``: each round uses the first embeddings, this many.
    ``deadline``: each round uses the embeddings that arrive within this many seconds (at least one). A client that a
    round did not wait for gets no gradient for it, and joins the current round when it has finished its upload.

    Examples: ``{kind: ignore, exclude: N/2+1..N}``, ``{kind: ignore, fastest: 5}``, ``{kind: ignore, deadline: 2
    s}``
    """

    kind: Literal["ignore"] = "ignore"
    exclude: Selection | None = None
    """These clients never take part."""
    traits: ClassVar[Traits] = replace(InTime.traits, blindable=True, party_dropout=True)

    def participants(self, clients: int, symbols: Mapping[str, float]) -> list[int]:
        """Return the clients that are not excluded."""
        return others(self.exclude, {**symbols, "N": clients})

    def without(self, clients: tuple[int, ...]) -> Protocol:
        """Return this protocol with these clients excluded."""
        return super().without(clients) if self.exclude is None else Ignore(exclude=clients)

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` if no client is left, or if rounds of the fastest would always miss masks."""
        super().check(context)
        count = len(self.participants(context.clients, context.symbols))
        if count == 0:
            raise ValueError(f"exclude leaves none of the {context.clients} clients; at least one must stay")
        blinding = context.blinding
        if blinding is not None and blinding.missing != "wait" and self.fastest is not None and self.fastest < count:
            raise UnsuitableError(
                "blinding",
                f"missing: {blinding.missing} applies to every round of the fastest {self.fastest} of {count} clients, "
                f"whose masks do not cancel; allowed: missing: wait, or fastest: {count}",
            )

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        rules = [name for name in ("exclude", "fastest", "deadline") if getattr(self, name) is not None]
        if len(rules) != 1:
            raise ValueError(
                f"ignore needs exactly one of exclude, fastest and deadline, not {' and '.join(rules) or 'none'}"
            )
        return self


class RoundTrips(Protocol):
    """Round k: every client embeds batch k, the server steps on all embeddings, every client steps."""

    traits: ClassVar[Traits] = ROUNDS
    sends: ClassVar[type[Message]] = Embedding
    """The kind of message that clients upload about a batch."""

    async def server(self, node: ServerNode) -> None:
        """Wait for all embeddings of the round; step; return the gradients."""
        await relay_keys(node)
        for k in node.rounds():
            if embeddings := await of_all(node, k, kind=self.sends.kind):
                step = await node.compute(node.learner.server_step(embeddings))
                for embedding in embeddings:
                    await node.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=k))

    async def client(self, node: ClientNode) -> None:
        """Each round: embed, upload, wait for the gradient, step."""
        await agree_on_keys(node)
        for k in node.rounds():
            await node.activated()
            batch = node.batch(k)
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", self.sends(batch, h, round=k))
            gradient = await node.recv("gradient", round=k)
            if gradient.value is not None:
                await node.compute(node.learner.client_step(batch, gradient))


class Synchronous(RoundTrips):
    """Round k: every client embeds batch k, the server steps on all embeddings, every client steps.

    Example: ``{kind: synchronous}``

    Example of a protocol that changes one hook of it::

        class Patient(Synchronous):
            kind: Literal["patient"] = "patient"

            def describe(self, setting: Setting) -> str:
                return f"waits for all {len(setting.clients)} clients"


        Patient().describe(setting)  # 'waits for all 4 clients'
    """

    kind: Literal["synchronous"] = "synchronous"
    traits: ClassVar[Traits] = replace(ROUNDS, blindable=True, party_dropout=True)

    def without(self, clients: tuple[int, ...]) -> Ignore:
        """Return synchronous rounds that ignore these clients."""
        return Ignore(exclude=clients)


class Centralised(RoundTrips):
    """Train with the models and batches of synchronous training, but with all features at the server and no messages.

    The server computes the whole model, the clients' parts included. A round takes the time of this one computation
    (``compute.server_step``). Counted FLOPs are those of the forward and backward passes of all models, at the server's
    rate. A sampled time of the server covers the whole computation. The difference between another protocol and this
    one is the cost of distribution. It runs the synchronous algorithm with operations and messages that take no time.

    Example: ``{kind: centralised}``
    """

    kind: Literal["centralised"] = "centralised"
    traits: ClassVar[Traits] = REFERENCE
