"""When the replies to queries about rows arrive, as the timing plane has it: shapes and costs, no values."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import partial
from typing import Any

import numpy as np

from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.protocols.answering import Ask, InferenceQuery
from vflsim.protocols.capabilities import answering_of
from vflsim.setting import Setting
from vflsim.simulation.build import Parties, outages_of, party_clock
from vflsim.streams import SERVER, party_name
from vflsim.timing.floats import Floats
from vflsim.world.node import Node
from vflsim.world.party import Draws, Party, RunContext
from vflsim.world.record import Recorder
from vflsim.world.task import Task
from vflsim.world.transport import Transport
from vflsim.world.virtual import VirtualWorld
from vflsim.world.wire import Wires


class TimedQueries:
    """Queries of a server, one after the other, to clients that do nothing else.

    A world of its own times them: its clock begins at 0, and its draws, of a seed that follows from the run's, are the
    same under every protocol. Outages, bursts and capacities of links begin anew, and activations play no part.
    """

    def __init__(self, parties: Parties, setting: Setting, seed: int) -> None:
        self._answering, self._setting = answering_of(parties.protocol), setting
        self._world = world = VirtualWorld(TimingOnlyExecutor())
        recorder, outages = Recorder("summary"), outages_of(setting, seed)
        links = [timing.link for timing in setting.timings]
        gates = {} if outages is None else outages.gates()
        self._shared = shared = RunContext(
            world=world,
            transport=Transport(
                world,
                setting.network,
                links,
                seed,
                recorder,
                gates,
                setting.transport,
                setting.timings[SERVER].concurrency,
            ),
            recorder=recorder,
            wires=Wires(setting.codec, world.executor, seed),
            clients=setting.clients,
            sequence=parties.shared.sequence,
            outages=outages,
            protocol=type(parties.protocol).__name__,
        )

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
