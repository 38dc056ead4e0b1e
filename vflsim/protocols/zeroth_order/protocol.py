"""VFL-CZOFO (Wang et al. 2023) and DPZV (Zhang et al. 2025): losses come down in place of gradients."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.privacy.mechanisms import Gaussian
from vflsim.protocols.base import TABLE, CheckContext, Traits, replace
from vflsim.protocols.vafl import OwnPaceProtocol
from vflsim.protocols.zeroth_order.learning import (
    Directions,
    Law,
    LossDifferences,
    LossServer,
    OutputClient,
    PrivateLossServer,
    WeightClient,
)
from vflsim.setting import ClientsMade, Learners, Setting, client_parts, server_parts
from vflsim.vocabulary.quantities import Count, PositiveNumber
from vflsim.world.messages import Embedding
from vflsim.world.node import ClientNode, ServerNode


class ZerothOrder(OwnPaceProtocol):
    """Clients at their own pace, whom the server answers with differences of losses in place of gradients."""

    smoothing: PositiveNumber = 1e-3
    """μ, how far losses are taken from the point at which a gradient is estimated."""
    samples: Count = 1
    """q, the directions of an estimate."""
    directions: Law = "sphere"
    """Whether directions are uniform on the unit ``sphere``, or have independent normal elements (``gaussian``)."""

    @property
    def arrivals(self) -> int:
        """Return 1: every arrival makes a server step."""
        return 1

    async def server(self, node: ServerNode) -> None:
        """On each upload: step, with the other clients' rows from the table; return the differences of losses."""
        await self.fill_table(node)
        while True:
            fresh = await node.gather("embedding", count=1)
            answers = await self.requery(node, fresh)
            step = await node.compute(node.learner.server_step(fresh, answers))
            for message in fresh:
                await node.send(message.sender, LossDifferences(value=step.gradient_for(message), round=message.round))

    async def work_at_own_pace(self, node: ClientNode) -> None:
        """Client: wait for activation, embed a batch, upload it, wait for the differences, step along an estimate."""
        while True:
            await node.activated()
            batch = node.next_batch()
            h = await node.compute(node.learner.embed(batch))
            await node.upload("server", Embedding(batch, h, round=batch.index))
            differences = await node.recv("loss_differences", round=batch.index)
            await node.compute(node.learner.client_step(batch, differences))

    @property
    def trains(self) -> Literal["", "together", "own pace"]:
        """Return that no program trains these learners, which are their own."""
        return ""

    def smoothed(self, seed: int) -> Directions:
        """Return how a run with ``seed`` takes its losses."""
        return Directions(self.smoothing, self.samples, self.directions, seed)


class Czofo(ZerothOrder):
    """VFL-CZOFO (Wang et al., NeurIPS 2023), asynchronous, with a table at the server.

    Client m: sends C(h_m) of a batch. Server: ℓ at h_m and the table, ℓ_i at h_m + μ u_i, i = 1 … q, rows of u_i on the
    unit sphere; sends C(ℓ_1 − ℓ … ℓ_q − ℓ); steps θ_0 along ∇ℓ. Client: ĝ = φ/(μ q) Σ (ℓ_i − ℓ) u_i, φ the embedding's
    width (1 for ``gaussian``); θ_m ← θ_m − η ∇θ_m h_m ĝ. Each C is the ``codec``.

    ``perturbs: weights`` is the earlier cascade of the same authors (arXiv 2306.16077): clients send embeddings of θ_m
    and of θ_m + μ u_i side by side, φ is the number of weights, and θ_m steps along φ/(μ q) Σ (ℓ_i − ℓ) u_i.

    Not in what we have read of the papers, or otherwise in the authors' program: both draw u_i from a seed in common,
    so that one embedding goes up, as the program counts. All losses are at θ_0 before its step; the program takes ℓ_i
    after it. Coordinates as directions (2 losses of each row and element) are left out: nothing is saved.

    Examples: ``{kind: czofo, samples: 10, smoothing: 1e-3, directions: sphere}``, ``{kind: czofo, perturbs: weights,
    first_fill: upload, max_staleness: 20, bounds: row_age}``
    """

    kind: Literal["czofo"] = "czofo"
    perturbs: Literal["embeddings", "weights"] = "embeddings"
    """What losses are taken around: a client's ``embeddings``, or all its ``weights``."""

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for a mechanism of uploads that perturbed weights have been through."""
        super().check(context)
        if self.perturbs == "weights" and context.setting is not None and context.setting.mechanism is not None:
            raise ValueError(
                "perturbs: weights uploads several embeddings of each row, and a mechanism counts one; "
                "allowed: perturbs: embeddings, or no mechanism"
            )

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make a server that answers with losses, and clients that estimate from them."""
        smoothing, outputs = self.smoothed(seed), self.perturbs == "embeddings"

        def client(m: int) -> ClientLearner:
            parts = client_parts(setting, m, seed)
            return OutputClient(parts, smoothing) if outputs else WeightClient(parts, smoothing, two_sided=False)

        kind = OutputClient if outputs else WeightClient
        server = LossServer(server_parts(setting, seed, table=True), smoothing, drawn=outputs)
        return Learners(server, ClientsMade(kind, setting.clients, client))


class Dpzv(ZerothOrder):
    """DPZV (Zhang et al. 2025, arXiv 2502.20565), asynchronous, with a table at the server.

    Client m: sends h⁺ and h⁻ of a batch, the embeddings at θ_m ± λ u, u on the unit sphere. Server: for each row j,
    δ_j = (ℓ_j(h⁺) − ℓ_j(h⁻))/(2λ); sends Δ = 1/B (Σ_j clip_C(δ_j) + z), z ~ N(0, σ²), σ = 2 C · noise multiplier.
    Client: θ_m ← θ_m − η φ Δ u, φ the number of weights (1 for ``gaussian``). λ is ``smoothing``, C ``noise.clip``.
    With several ``samples``, clip_C bounds a row's vector of slopes, and the step is along the mean of the estimates.

    ε is of one row, replaced by any other, against all clients together: they see every Δ, and which rows are in a
    batch. Replacing a row moves a sum by 2 C at most, so n steps with it are n Gaussian releases, as the accountant
    counts them. It takes θ_0 as given, which learns from labels without noise. Uploads are not protected.

    Not in what we have read of the paper: how the server steps (here by first order, at (h⁺ + h⁻)/2, which is also what
    the table keeps), and how its batches are drawn. There δ has 1/λ and no φ: that is another learning rate and clip.

    Examples: ``{kind: dpzv, noise: {clip: 1, delta: 1e-5, noise_multiplier: 2}, samples: 1, smoothing: 1e-3,
    directions: sphere}``, ``{kind: dpzv, noise: {clip: 0.5, delta: 1e-5, epsilon: 8, per: run, releases: 40},
    first_fill: upload, max_staleness: 20, bounds: row_age}``
    """

    kind: Literal["dpzv"] = "dpzv"
    noise: Gaussian
    """What bounds and perturbs the answers: the keys of the mechanism ``gaussian``, for rows of slopes."""
    traits: ClassVar[Traits] = replace(TABLE, mechanism=False, noise=True)

    def check(self, context: CheckContext) -> None:
        """Raise ``ValueError`` for noise whose ε would not hold."""
        super().check(context)
        if self.noise.secret:
            raise ValueError("noise.batches: secret, and clients know their batches; allowed: known")
        if self.noise.needs_plan or self.noise.rounds is not None:
            raise ValueError(
                "noise.epsilon per run needs the number of releases of a row, by all clients together; "
                "allowed: noise.releases"
            )

    def describe(self, setting: Setting) -> str:
        """Say what the answers reveal."""
        return f"answers to all clients: {self.noise.promise()}"

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make a server with noisy answers, and clients that send pairs of embeddings."""
        smoothing = self.smoothed(seed)

        def client(m: int) -> WeightClient:
            return WeightClient(client_parts(setting, m, seed), smoothing, two_sided=True)

        server = PrivateLossServer(server_parts(setting, seed, table=True), smoothing, self.noise)
        return Learners(server, ClientsMade(WeightClient, setting.clients, client))
