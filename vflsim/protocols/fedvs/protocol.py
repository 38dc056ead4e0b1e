"""FedVS: synchronous split training on Lagrange-coded shares that waits only for the fastest (FedVS Alg. 1)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar

from vflsim.analysis.findings import Choices, Finding
from vflsim.codecs import Codec
from vflsim.coding.field import MERSENNE_31, MERSENNE_61
from vflsim.learning.batches import Batch
from vflsim.protocols.answering import Answering, InferenceQuery
from vflsim.protocols.base import CheckContext, Traits, UnsuitableError
from vflsim.protocols.capabilities import ActsByHand, Peering
from vflsim.protocols.fedvs.exchange import Answers, CodedRounds, ShareExchange, coded_reply
from vflsim.protocols.fedvs.keys import MAGNITUDE, CodedKeys, coding_plan, expanded_columns, magnitude
from vflsim.protocols.fedvs.learners import coded_learners
from vflsim.protocols.fedvs.messages import coded_acts, coded_contents, data_acts
from vflsim.protocols.fedvs.plan import MOST_KEPT, SegmentedBatches
from vflsim.protocols.fedvs.rounds import choices_of, coded
from vflsim.protocols.fedvs.stages import CodedStages
from vflsim.recurrences import Acts, Obstacle, Recurrence, SynchronousRounds, TimedWorld
from vflsim.setting import BatchPlan, Learners, Setting
from vflsim.streams import SERVER
from vflsim.tracing.exchanges import Contents
from vflsim.vocabulary.amounts import quantity
from vflsim.world.messages import Gradient
from vflsim.world.node import Node

_POWERS = {MERSENNE_31: "2^31 − 1", MERSENNE_61: "2^61 − 1"}
_QUANTISED, _ELEMENT = 4, 8
"""Bytes of a quantised feature (mostly), and of an element of a field."""
FEWEST_CLIENTS = 3
"""R with K = T = 1: the answers of fewer clients decode nothing."""


class FedVS(ActsByHand, Peering, Answering, CodedKeys):
    """Every client shares its data once and its model every round; the server decodes from the R fastest answers.

    Any R = 2(K+T−1) + 1 coded embeddings give the exact sum over **all** clients that have shared, stragglers included.
    The shares of any T clients reveal nothing about the data and models of others (Thm 5.2); nor do the coded
    embeddings of up to T clients to the server (Thm 5.3 covers one). The R used for decoding reveal the sum, and may
    reveal more: they determine a whole polynomial, of which the sums are K values.

    Examples: ``{kind: fedvs, K: 4, T: 1}``, ``{kind: fedvs, K: 2, T: 2, prime: 2^61-1, data_bits: 10, weight_bits:
    12, weight_bound: 8, late: finished, arithmetic: decoded, sharers: 6, share_delay_factor: 0.1, log_base: 10,
    deadline: 5 s, too_few: skip}``
    """

    traits: ClassVar[Traits] = Traits(
        rounds_correspond=True,
        mechanism=False,
        shows_uploads=False,
        runs_on_cpu=True,
        refuses_absent_rows="a coded sum is over the embeddings of all clients, and none can be left out of it",
        aggregate=("mean", "fedvs decodes the mean of all embeddings, and the aggregate is {other}"),
    )

    facts_told: ClassVar[tuple[str, ...]] = (MAGNITUDE,)
    needs_everybody: ClassVar[str] = "its peers compute on shares of the query's rows from every client"

    # --- the server -------------------------------------------------------------------------------------------------

    async def server(self, node: Node) -> None:
        """Decode the sum of all embeddings from the R fastest; step; broadcast the gradient."""
        for table, row in self.records(node.learner).items():
            node.record(table, **row)
        answers = Answers(self, node)
        for k in node.rounds():
            embeddings, sharers = await answers.fastest(k)
            if len(embeddings) == self.threshold:
                batch = node.batch(k)
                responders = [embedding.sender for embedding in embeddings]
                h = await node.compute(node.learner.decode(batch, embeddings, sharers))
                node.derive("mean", batch, [h])
                gradient = await node.compute(node.learner.coded_step(batch, h, responders, sharers))
            else:
                gradient = None
                answers.give_up(k, embeddings)
            for client in node.clients:
                await node.send(client, Gradient(value=gradient if client in sharers else None, round=k))

    # --- a client ---------------------------------------------------------------------------------------------------

    async def client(self, node: Node) -> None:
        """Share the data once. Every round: share the model, compute on the shares, upload; step."""
        exchange = ShareExchange(node)
        coded = CodedRounds(self, node, exchange)
        await exchange.share_data()
        for k in node.rounds(over="gradient"):
            await node.activated()
            batch = node.batch(k)
            async with node.until("gradient", round=k) if self.late == "abandoned" else nullcontext():
                await exchange.catch_up(k)
                sharers = await coded.share(k)
                await coded.answer(batch, k, sharers)
            gradient = await node.recv("gradient", round=k)
            if gradient.value is not None:
                await node.compute(node.learner.client_step(batch, gradient))

    # --- inference --------------------------------------------------------------------------------------------------

    async def reply(self, node: Node, query: InferenceQuery) -> None:
        """Client: share the query's rows, compute on all shares, and upload."""
        await coded_reply(self, node, query)

    def known(self, setting: Setting, came: Collection[int]) -> Collection[int]:
        """Return all clients once R replies have come: they decode the sum over all; fewer decode nothing."""
        return setting.clients if len(came) >= self.threshold else ()

    # --- the learning plane -----------------------------------------------------------------------------------------

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make learners that share data and models, compute on shares, and decode."""
        return coded_learners(setting, coding_plan(self, setting, seed), seed)

    def public_facts(self, setting: Setting, client: int) -> Mapping[str, float]:
        """Return the bound of a client's features from which, with all others, the scales follow (Sec. 5.2)."""
        return {MAGNITUDE: magnitude(setting, client)}

    def needs_one_process(self) -> str:
        """Refuse decoding in the clear, which reads everybody's data and models."""
        if self.arithmetic == "coded":
            return ""
        return "arithmetic: decoded computes from the data and models behind the shares; allowed: arithmetic: coded"

    def extra_bytes(self, setting: Setting) -> int:
        """Count quantised features, shares that are kept with their masks, rounded weights with draws, and answers."""
        columns, rows, width = expanded_columns(setting), setting.data.rows, setting.widths[0]
        segment = -(-rows // self.K) if self.arithmetic == "coded" else 0
        shares = (_QUANTISED if self.prime == "2^31-1" else _ELEMENT) * len(setting.clients) * segment * columns
        answers = setting.batch if self.arithmetic == "decoded" else self.threshold * -(-setting.batch // self.K)
        round_ = _ELEMENT * width * (2 * columns + answers)
        return columns * (_QUANTISED * rows + _ELEMENT * self.T * segment) + shares * (shares <= MOST_KEPT) + round_

    def extra_view_bytes(self, setting: Setting, rows: int) -> int:
        """Count every client's shares of the data of all others, masks of their rows, embeddings and gradients."""
        columns, others = expanded_columns(setting), len(setting.clients) - 1
        masks = 0 if self.arithmetic == "coded" else self.T * -(-setting.data.rows // self.K)
        exchanged = 2 * rows * sum(setting.widths) * setting.dtype.itemsize
        return _ELEMENT * columns * (others * rows + masks) + exchanged

    # --- analysis ---------------------------------------------------------------------------------------------------

    def rare_contents(self, setting: Setting, sender: int, receiver: int, rows: int) -> Contents:
        """Return coded embeddings, gradients, shares, requests and lists of clients."""
        return coded_contents(self, setting, sender, receiver, rows)

    def closed_forms(self, setting: Setting) -> tuple[Finding, ...]:
        """Return the laws of a round: a barrier of shares, the R-th upload, and a server step (Sec. 5)."""
        return coded(CodedStages(self, setting))

    def choices(self, setting: Setting) -> tuple[Choices, ...]:
        """Compare every K and every T by the mean round."""
        return choices_of(self, setting)

    def records(self, server: Any) -> Mapping[str, Mapping[str, Any]]:
        """Return the facts about the code."""
        return {"coding": server.plan.facts()}

    def first_acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
        """Return the sharing of the data."""
        return data_acts(clients, client)

    def acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
        """Return the sharing of models, the answers, and the step on the R fastest."""
        return coded_acts(self, server, clients, client, batch)

    @property
    def vectorised_with(self) -> frozenset[str]:
        """Return that clients may wait for activations, and that they send each other messages."""
        return frozenset({"activation", "peers"})

    def obstacles(self) -> Iterator[Obstacle]:
        """Yield sums over some of the clients, and deadlines."""
        if self.sharers is not None:
            what = "the sum of a round goes over those who share first, whom the server announces"
            yield Obstacle("sharers", what, "none: all clients")
        if self.deadline is not None:
            yield Obstacle("deadline", "rounds that miss their deadline are given up", "none: too_few: wait")

    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence of rounds in which clients wait for each other, and the server for the R fastest.

        Its acts are by hand: a trace knows no messages between clients.
        """
        return SynchronousRounds(world)

    def describe(self, setting: Setting) -> str:
        """Describe R, the field, the scales and the storage in one line."""
        plan = coding_plan(self, setting, seed=0)
        clients, quantiser = len(plan.clients), plan.quantiser
        return (
            f"R = {plan.threshold} of {clients} clients must answer (K = {self.K}, T = {self.T}), "
            f"{clients - plan.threshold} may straggle; p = {_POWERS[quantiser.field.p]}, {quantiser.data_bits} + "
            f"{quantiser.weight_bits} bits for data and for weights up to {self.weight_bound:g}; each client stores "
            f"{quantity(plan.storage, 'B')} of shares"
        )

    # --- checks -----------------------------------------------------------------------------------------------------

    def batch_plan(self) -> BatchPlan:
        """Return batches within segments; messages include shares of every client's model for all others."""
        return BatchPlan(make=lambda rows, *of: SegmentedBatches(rows, self.K, *of), to_peers=True)

    def check(self, context: CheckContext) -> None:
        """Check that R clients and the sharers exist, and that embeddings are polynomials and averaged."""
        super().check(context)
        if context.clients < FEWEST_CLIENTS:
            many = f"{context.clients} client{'' if context.clients == 1 else 's'}"
            raise ValueError(
                f"fedvs needs R = 2(K+T-1) + 1 answers, {FEWEST_CLIENTS} at least (K = T = 1), and there are {many}; "
                f"allowed: {FEWEST_CLIENTS} clients or more; add clients, or leave fedvs out"
            )
        if self.threshold > context.clients:
            most = (context.clients - 1) // 2 - self.T + 1
            key = f"K: {self.K} segments with T = {self.T}" if most >= 1 else f"T: {self.T} with K = {self.K} segments"
            raise ValueError(
                f"{key} needs R = 2(K+T-1) + 1 = {self.threshold} answers, and there are {context.clients} clients; "
                f"allowed: K + T up to {(context.clients - 1) // 2 + 1}"
                + (f", so K up to {most} with this T" if most >= 1 else "")
            )
        if self.sharers is not None and self.sharers > context.clients:
            raise ValueError(f"sharers: {self.sharers} of {context.clients} clients; allowed: 1 to {context.clients}")
        if context.batch != "all" and context.batch % self.K:
            raise ValueError(
                f"K: {self.K} segments cannot share a batch of {context.batch} rows equally; allowed: a divisor of the "
                "batch, or any K with batch: all; change K or training.batch"
            )
        for client, model in enumerate(context.models, start=1):
            if model.powers is None:
                raise ValueError(
                    f"fedvs computes on shares of polynomials, and the model of client {client} is {model.kind}; "
                    "allowed: linear and polynomial clients"
                )
        self._check_codec(context.codec)
        if context.setting is not None:
            self._check_data(context.setting)

    def _check_codec(self, codec: Codec) -> None:
        """Refuse codecs of uploads: elements of a field are exact, or nothing can be decoded."""
        if not codec.towards(SERVER).lossless:
            raise UnsuitableError(
                "codec",
                f"clients of fedvs upload elements of a field, which no codec changes, and {codec.kind} is for "
                "floating-point numbers; allowed: plain, or by_direction with down alone, for the gradients",
            )

    def _check_data(self, setting: Setting) -> None:
        """Raise ValueError for categorical columns, and where sums could wrap in the field."""
        if setting.data.coded_shapes:
            raise ValueError(
                "coded clients evaluate polynomials of numbers; allowed: data without categorical columns, or with "
                "encoding: one_hot"
            )
        coding_plan(self, setting, seed=0)
