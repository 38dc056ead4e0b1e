"""Inference under deadlines, when training has ended: when replies arrive, and what the server answers."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from vflsim.errors import RunError, VflsimError
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.execution.operations import ImmediateExecutor, TimingOnlyExecutor
from vflsim.learning.models.build import drawing_from
from vflsim.learning.states import under
from vflsim.protocols.answering import Answering, Ask, InferenceQuery
from vflsim.protocols.capabilities import answering_of
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.scenario.sections import Evaluate
from vflsim.setting import Learners, Setting
from vflsim.simulation.build import Parties, context_of, parties, party_clock
from vflsim.streams import SERVER, SHARED, party_name, stream_key, torch_seed
from vflsim.timing.floats import Floats
from vflsim.vocabulary.on_demand import Tensor, load, torch
from vflsim.world.node import Node
from vflsim.world.party import Draws, Party
from vflsim.world.record import Recorder
from vflsim.world.task import Task
from vflsim.world.virtual import VirtualWorld


class TimedQueries:
    """Queries of a server, one after the other, to clients that do nothing else.

    A world of its own times them: its clock begins at 0, and its draws, of a seed that follows from the run's, are the
    same under every protocol. Outages, bursts and capacities of links begin anew, and activations play no part.
    """

    def __init__(self, parties: Parties, setting: Setting, seed: int) -> None:
        self._answering, self._setting = answering_of(parties.protocol), setting
        self._world = world = VirtualWorld(TimingOnlyExecutor())
        recorder, sequence = Recorder("summary"), parties.shared.sequence
        self._shared = shared = context_of(parties.protocol, setting, seed, world, recorder, sequence)

        def node(party: int, learner: Any) -> Node:
            clock = party_clock(setting.timings[party], seed, party)
            return Node(Party(party, shared, clock, Draws(seed, party), shared.sequence), learner)

        self._server = node(SERVER, parties.server.learner)
        self._clients = {each.party: node(each.party, each.learner) for each in parties.clients}

    def arrivals(self, queries: Collection[range]) -> Floats:
        """Return when each reply arrives, in seconds since its query, (queries, clients); infinite if never.

        The server asks when all replies to the query before have arrived, but for those of clients that crashed.
        """
        arrived = np.full((len(queries), len(self._clients)), math.inf)
        batch, dtype = self._setting.batch, self._setting.uploaded
        asked = [InferenceQuery(number, len(rows), batch, dtype) for number, rows in enumerate(queries)]
        place = {client: j for j, client in enumerate(self._clients)}

        async def serve() -> None:
            node = self._server
            for query in asked:
                began = node.now
                for client in node.clients:
                    await node.send(client, Ask(round=query.number))
                for reply in await node.gather("reply", senders=node.clients, round=query.number, forgoing=True):
                    if reply.value is not None:
                        arrived[query.number, place[reply.sender]] = reply.arrived - began
            node.finish("answered")

        async def attend(node: Node) -> None:
            while True:
                ask = await node.recv("ask")
                await self._answering.reply(node, asked[ask.round])

        def start(client: int) -> Task:
            return self._world.spawn(attend(self._clients[client]), party_name(client), client)

        self._world.spawn(serve(), "server", SERVER)
        if self._shared.outages is not None:
            self._shared.outages.begin(self._shared, {client: partial(start, client) for client in self._clients})
        else:
            for client in self._clients:
                start(client)
        try:
            self._world.run()
        finally:
            self._world.close()
        return arrived


_QUANTILE = 0.95


def answered(
    asked: Evaluate, parties: Parties, setting: Setting, seed: int, error: VflsimError | None
) -> tuple[dict[str, pa.Table], VflsimError | None]:
    """Return the tables ``arrivals`` and ``answers`` of a run, and the run's error: its own, or one found here.

    There are none without deadlines, of a run that failed, without training, and where clients are other processes
    (``later_answers``).
    """
    if asked.deadline is None or error is not None or not parties.server.world.executor.values or not parties.clients:
        return {}, error
    try:
        return answers_of(asked, parties, setting, seed), None
    except VflsimError as failure:
        return {}, failure
    except Exception as failure:  # the user's code may raise anything
        return {}, RunError(f"no answers under evaluate.deadline: {failure}")


def answers_of(asked: Evaluate, parties: Parties, setting: Setting, seed: int) -> dict[str, pa.Table]:
    """Return when replies arrive (``arrivals``), and what the server answers by each deadline (``answers``)."""
    rows, size = len(setting.data.labels["test"]), asked.query_rows or setting.batch
    queries = [range(start, min(start + size, rows)) for start in range(0, rows, size)]
    own_seed = torch_seed(seed, SHARED, "inference")
    arrivals = TimedQueries(parties, setting, own_seed).arrivals(queries)
    answers = _Answers(asked, parties, setting, own_seed, queries, arrivals)
    return {"arrivals": _arrivals_table(setting, queries, arrivals), "answers": answers.table()}


@dataclass
class _Answers:
    """What the server predicts from the replies that have arrived by a deadline."""

    asked: Evaluate
    parties: Parties
    setting: Setting
    seed: int
    queries: list[range]
    arrivals: Floats

    def table(self) -> pa.Table:
        """Return a row for each deadline, and one for a server that waits for all that comes."""
        for learner in (self.parties.server.learner, *(client.learner for client in self.parties.clients)):
            for model in learner.models.values():
                model.module.eval()
        with torch.no_grad():
            return pa.Table.from_pylist([self._row(deadline) for deadline in (*(self.asked.deadline or ()), math.inf)])

    def _row(self, deadline: float) -> dict[str, float]:
        came = [self._clients(np.isfinite(times) & (times <= deadline)) for times in self.arrivals]
        known = [self._known(each) for each in came]
        times = np.minimum(deadline, self._complete)
        times = np.where(np.isfinite(times), times, self._latest)
        counts, everybody = np.array([*map(len, known)]), len(self.setting.clients)
        return {
            "deadline_s": deadline,
            "queries": len(self.queries),
            "answer_s_mean": float(times.mean()),
            "answer_s_median": float(np.median(times)),
            "answer_s_p95": float(np.quantile(times, _QUANTILE)),
            "answer_s_max": float(times.max()),
            "replies_mean": float(np.mean([*map(len, came)])),
            "embeddings_mean": float(counts.mean()),
            "complete": float((counts == everybody).mean()),
            "empty": float((counts == 0).mean()),
            **{f"test_{name}": value for name, value in self._scores(known).items()},
        }

    def _clients(self, chosen: Any) -> tuple[int, ...]:
        return tuple(client for client, each in zip(self.setting.clients, chosen, strict=True) if each)

    def _known(self, came: tuple[int, ...]) -> tuple[int, ...]:
        known = {*self._answering.known(self.setting, came)}
        return self._clients(client in known for client in self.setting.clients)

    @cached_property
    def _complete(self) -> Floats:
        """When the embeddings of all clients count, in seconds since each query; infinite if they never do."""
        moments = np.full(len(self.queries), math.inf)
        for query, times in enumerate(self.arrivals):
            for time in np.sort(times[np.isfinite(times)]):
                if self._known(self._clients(times <= time)) == self.setting.clients:
                    moments[query] = time
                    break
        return moments

    @cached_property
    def _latest(self) -> Floats:
        """When the last reply arrives that comes at all, in seconds since each query; 0 if none does."""
        latest: Floats = np.where(np.isfinite(self.arrivals), self.arrivals, 0.0).max(axis=1)
        return latest

    def _scores(self, known: list[tuple[int, ...]]) -> dict[str, float]:
        """Score the predictions for all test rows, made together for queries with embeddings of the same clients."""
        alike: dict[tuple[int, ...], list[int]] = {}
        for clients, query in zip(known, self.queries, strict=True):
            alike.setdefault(clients, []).extend(query)
        server, predicted = self.parties.server.learner, self._prior.expand(len(self._labels), -1).clone()
        for clients, rows in alike.items():
            chosen = torch.tensor(rows, device=predicted.device)
            embeddings = self._embeddings(clients, chosen)
            if any(h is not None for h in embeddings.values()):
                predicted[chosen] = self._answering.answer(self._learners, embeddings).to(predicted)
        scores: dict[str, float] = server.scores(predicted, "test")
        return scores

    def _embeddings(self, clients: Collection[int], rows: Tensor) -> dict[int, Tensor | None]:
        """Return by party what the server predicts some rows from, in party order; None where nothing stands for it."""
        embeddings = {} if self._server_embedding is None else {SERVER: self._server_embedding[rows]}
        stand_in = self._stand_ins
        return embeddings | {
            client: self._arrived[client][rows] if client in clients
            else None if client not in stand_in else stand_in[client].expand(len(rows), -1)
            for client in self.setting.clients
        }  # fmt: skip

    # --- what the answers are made of ---------------------------------------------------------------------------------

    @cached_property
    def _answering(self) -> Answering:
        return answering_of(self.parties.protocol)

    @cached_property
    def _learners(self) -> Learners[Any, Any]:
        return Learners(self.parties.server.learner, {client.party: client.learner for client in self.parties.clients})

    @property
    def _labels(self) -> Tensor:
        return self.setting.data.labels["test"]

    @cached_property
    def _prior(self) -> Tensor:
        """The prediction for a row without any embedding, (outputs,): what the training rows' labels say."""
        data = self.setting.data
        return data.task.prior(data.labels["train"], data.outputs).to(self.setting.dtype)

    @cached_property
    def _server_embedding(self) -> Tensor | None:
        """An active server's own embeddings of the test rows, which are there at once."""
        return self._answering.own(self._learners)

    @cached_property
    def _arrived(self) -> dict[int, Tensor]:
        """What arrives of every client's replies, (test rows, width): each reply passes the codec by itself."""
        whole = {client: _embedded(learner, "test") for client, learner in self._learners.clients.items()}
        if self._sent_as_it_is:
            return whole
        places = [(f"reply/{n}", slice(rows.start, rows.stop)) for n, rows in enumerate(self.queries)]
        return {
            client: torch.cat([self._through(client, what, h[rows]) for what, rows in places])
            for client, h in whole.items()
        }

    @property
    def _sent_as_it_is(self) -> bool:
        """Whether embeddings lose nothing on their way: blinded ones are integers, which no codec changes."""
        return self.setting.blinding is not None or self.setting.codec.towards(SERVER).lossless

    def _through(self, client: int, what: str, h: Tensor) -> Tensor:
        """Return what the server gets of an embedding that a client sends."""
        if self._sent_as_it_is:
            return h
        key = stream_key(self.seed, client, f"codec.{what}") & 2**64 - 1
        return self.setting.codec.towards(SERVER).keyed(key).through(h)

    @cached_property
    def _stand_ins(self) -> Mapping[int, Tensor]:
        """What stands for the embedding of each client that has not come, (width,); empty if nothing does."""
        if self.asked.missing == "absent":
            return {}
        if self.asked.missing == "zeros":
            return {client: torch.zeros_like(h[0]) for client, h in self._arrived.items()}
        means = {client: _embedded(learner, "train").mean(0) for client, learner in self._learners.clients.items()}
        return {client: self._through(client, "mean", mean[None])[0] for client, mean in means.items()}


def _embedded(learner: Any, split: str) -> Tensor:
    operation = learner.embed_split(split)
    operation.run()
    h: Tensor = operation.result.value
    return h


def _arrivals_table(setting: Setting, queries: list[range], arrivals: Floats) -> pa.Table:
    """Return a row for every query and client: its rows, and when its reply arrived, null if it never did."""
    count, clients = len(queries), len(setting.clients)
    seconds = arrivals.ravel()
    return pa.table({
        "query": np.repeat(np.arange(count), clients),
        "client": np.tile(np.array(setting.clients, np.int32), count),
        "rows": np.repeat([len(rows) for rows in queries], clients),
        "arrival_s": pa.array(seconds, mask=~np.isfinite(seconds)),
    })  # fmt: skip


# --- answers after a run ----------------------------------------------------------------------------------------------


def later_answers(
    scenario: Scenario, name: str, seed: int, data: LoadedData, weights: Mapping[str, torch.Tensor]
) -> dict[str, pa.Table]:
    """Return ``arrivals`` and ``answers`` of a run that has ended with these ``weights`` of all parties.

    They are those of a simulation that ends with these weights. Raises ``VflsimError`` as a simulation would end.
    """
    load()
    protocol, resolved = scenario.protocols[name].protocol, setting(scenario, name, data)
    with drawing_from(torch_seed(seed, SHARED, "learners")):
        nodes = parties(protocol, resolved, seed, VirtualWorld(ImmediateExecutor()), Recorder("summary"))
    for node in (nodes.server, *nodes.clients):
        node.learner.load_weights(under(party_name(node.party), weights))
    answers, error = answered(scenario.evaluate_of(name), nodes, resolved, seed, None)
    if error is not None:
        raise error
    return answers


def not_answerable(data: LoadedData, clients: tuple[int, ...], weights: Mapping[str, torch.Tensor]) -> str:
    """Return why ``later_answers`` cannot be had from what is here; empty if they can."""
    here = {name.partition(".")[0] for name in weights}
    if absent := [party_name(client) for client in clients if party_name(client) not in here]:
        return f"the weights of {', '.join(absent)} are not here"
    for client in clients:
        features = data.features[client - 1]["train"]
        if (features == features[:1]).all():
            return f"all rows of {party_name(client)} are alike here: a stand-in has taken the place of its features"
    return ""
