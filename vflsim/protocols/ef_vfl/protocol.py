"""EF-VFL: compressed differences instead of compressed values (Valdeira et al. 2025, Alg. 1 and private labels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from vflsim.protocols.base import ROUNDS, CheckContext, Protocol, Traits, replace
from vflsim.protocols.ef_vfl.learning import Difference, Sent, SharedDifferences, SurrogateServer, surrogate_learners
from vflsim.protocols.fedbcd import HeldEmbedding, shared_values_of
from vflsim.setting import Learners, Setting
from vflsim.streams import party_name
from vflsim.vocabulary.quantities import Count
from vflsim.world.messages import Gradient
from vflsim.world.node import Node


class EfVfl(Protocol):
    """Round t: clients send C(h_m − ĥ_m) of B(t); both ends add it to ĥ_m, one surrogate for every training row.

    C is the ``codec``. ``shared`` labels: the server sends all differences and C(θ_0 − θ̂_0) to all clients, and
    clients step at their own h_m, the others' ĥ_j and θ̂_0. ``private`` labels: the server sends ∂ℓ/∂ĥ_m, and clients
    step along it.

    Example: ``{kind: ef_vfl, labels: private, local_steps: 1}``
    """

    kind: Literal["ef_vfl"] = "ef_vfl"
    labels: Literal["shared", "private"] = "shared"
    """Whether clients hold the labels (``shared``, Alg. 1), or the server alone."""
    local_steps: Count = 1
    """The steps of every party in a round. Each is a computation; a client's counts as an update."""
    traits: ClassVar[Traits] = replace(ROUNDS, evaluates_uncompressed=True)

    async def server(self, node: Node[SurrogateServer]) -> None:
        """Add all differences to the surrogates, and step on these.

        Send gradients, or all differences and that of θ_0.
        """
        for t in node.rounds():
            differences = await node.gather("difference", senders=node.clients, round=t)
            if self.labels == "private":
                step, embeddings = await node.compute(node.learner.surrogate_step(differences))
                self.derive_surrogates(node, embeddings)
                for embedding in embeddings:
                    await node.send(embedding.sender, Gradient(value=step.gradient_for(embedding), round=t))
            else:
                changes, embeddings = await node.compute(node.learner.sharing_surrogate_step(differences))
                self.derive_surrogates(node, embeddings)
                shared = shared_values_of(changes, differences, t)
                for client in node.clients:
                    await node.send(client, shared)
                arrived = {name: node.as_received(difference) for name, difference in changes.items()}
                node.learner.shared = SharedDifferences(embeddings[0].batch, arrived)
            for _ in range(self.local_steps - 1):
                await node.compute(node.learner.local_step(embeddings))

    def derive_surrogates(self, node: Node[SurrogateServer], embeddings: Sequence[HeldEmbedding]) -> None:
        """Record the clients' surrogates as views of the server, which can compute them from the differences."""
        for each in embeddings:
            node.derive("surrogate", each.batch, [each.value], name=party_name(each.sender))

    async def client(self, node: Node[Any]) -> None:
        """Send the difference of B(t), and step. After a crash in this round, send the same difference again."""
        learner, private = node.learner, self.labels == "private"
        for t in node.rounds():
            await node.activated()
            batch = node.batch(t)
            sent: Sent | None = learner.sent if private else None
            if sent is not None and sent.round == t:
                difference = sent.value
            else:
                difference = await node.compute(learner.difference(batch))
            await node.upload("server", Difference(batch, difference, round=t))
            if private:
                learner.sent = Sent(t, batch, node.as_received(difference))
            received = await node.recv("gradient" if private else "shared_values", round=t)
            await node.compute(learner.client_step(batch, received))
            for _ in range(self.local_steps - 1):
                await node.compute(learner.step_again(batch, received))

    # --- facts that need no run --------------------------------------------------------------------------------

    @property
    def labels_at_clients(self) -> bool:
        """Return whether the key ``labels`` is ``shared``."""
        return self.labels == "shared"

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for settings with which the two ends of a link would add different differences."""
        super().check(context)
        if context.setting is not None:
            self._check_sums(context.setting)

    def _check_sums(self, setting: Setting) -> None:
        if setting.codec.remembers:
            raise ValueError(
                "ef_vfl has surrogates in place of error_feedback; allowed: a codec without error_feedback"
            )
        crashing = setting.crashing
        if crashing and self.labels == "shared":
            raise ValueError(
                f"{party_name(crashing[0])} would miss differences of the others in a crash (interrupted: lost); "
                "allowed: interrupted: resumed, or labels: private"
            )

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make learners that keep surrogates."""
        return surrogate_learners(setting, seed, self.labels)

    def extra_bytes(self, setting: Setting) -> int:
        """Count the embeddings' surrogates: the server's, and those of each client, of its own embedding or of all."""
        rows = setting.dtype.itemsize * setting.data.rows
        if self.labels == "private":
            return 2 * rows * sum(setting.widths)
        return (len(setting.clients) + 1) * rows * sum(setting.joined_widths)

    def describe(self, setting: Setting) -> str:
        """Say which labels and surrogates the parties have to hold."""
        surrogates = (
            f"surrogates of the embeddings: {self.extra_bytes(setting) / 2**20:.1f} MiB at all parties together"
        )
        return f"clients hold the labels of all training rows; {surrogates}" if self.labels == "shared" else surrogates
