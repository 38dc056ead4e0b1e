"""One live run, as the server's process plays it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from vflsim.errors import ResultsError, RunError
from vflsim.learning.randomness import drawing_from
from vflsim.remote.built import OwnParty, RemoteBox, emulated, own_party
from vflsim.remote.channel import Channel
from vflsim.remote.conductor import LiveConductor
from vflsim.remote.control import (
    Control,
    Counted,
    Done,
    Failed,
    Passing,
    Ready,
    Start,
    Stopped,
    WentDown,
    Withdrawn,
    Written,
)
from vflsim.remote.facts import Public
from vflsim.remote.frames import pack_message
from vflsim.remote.machine import machine
from vflsim.remote.outages import ServerOutages
from vflsim.remote.own_data import OwnData
from vflsim.remote.parts import read_part
from vflsim.remote.ways import Ways, stand_in
from vflsim.remote.world import LiveWorld
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.build import Parties, interruptible_of
from vflsim.simulation.conductor import Progress
from vflsim.simulation.execution import Execution
from vflsim.simulation.replay import ORDER, order_table
from vflsim.simulation.run import Outcome, run_parties, tables_of
from vflsim.streams import SERVER, SHARED, party_name, torch_seed
from vflsim.world.messages import Message
from vflsim.world.transport import Transport

LEAD_S = 0.2
"""Seconds from the order to start until the clocks of all parties are at 0."""


class Host(Protocol):
    """What a run asks of the server's process."""

    scenario: Scenario
    data: OwnData
    loop: asyncio.AbstractEventLoop

    @property
    def connected(self) -> Mapping[int, Channel]:
        """The connections to all clients, by their numbers."""


class ServerRun:
    """One live run: the server's party, and what it makes of the clients' frames.

    ``public``: the facts that all clients have told; None where they are connected to the server alone.
    """

    def __init__(self, host: Host, name: str, seed: int, public: Public | None = None) -> None:
        self._host, self._name, self._seed = host, name, seed
        scenario = host.scenario
        self._resolved = dataclasses.replace(setting(scenario, name, host.data.of(name)), public=public)
        self._emulated = emulated(self._resolved)
        self._world = world = LiveWorld(host.loop, self._emulated)
        taking_part = self._clients = {client: host.connected[client] for client in self._resolved.clients}
        self.channels = list(taking_part.values())
        made: list[OwnParty] = []

        def send(message: Message, timed: bool) -> None:
            taking_part[message.receiver].message(pack_message(message, made[0].wires, world.instant), timed)

        interruptible = interruptible_of(self._resolved)
        self._outages = ServerOutages(interruptible, seed, self._tell_one, self._lost) if interruptible else None
        gates = {} if self._outages is None else self._outages.gates()
        with drawing_from(torch_seed(seed, SHARED, "learners")):
            made.append(
                own_party(
                    scenario,
                    name,
                    seed,
                    self._resolved,
                    SERVER,
                    world,
                    lambda _: RemoteBox(world, partial(send, timed=True)),
                    lambda recorder: Transport(
                        world,
                        self._resolved.network,
                        [timing.link for timing in self._resolved.timings],
                        seed,
                        recorder,
                        gates,
                    ),
                    partial(send, timed=False),
                    self._outages,
                )
            )
        self._made = made[0]
        self._ways = Ways(
            world,
            self._made.shared.transport,
            self._resolved.clients,
            {} if self._outages is None else self._outages.crashes,
            self._arrive,
            self._tell_one if self._emulated else lambda _client, _message: None,
        )
        world.on_finish = lambda reason: self._tell(Stopped(reason=reason))
        for client, channel in taking_part.items():
            channel.attend(
                partial(self._on_control, client),
                lambda error: world.deliver(lambda: world.fail(error, "the connection")),
                partial(self._on_message, client),
            )

    def play(self, report: Callable[[Progress], None] | None) -> Outcome:
        """Run until a stop rule ends it; what clients record themselves is not in the outcome."""
        scenario, made = self._host.scenario, self._made
        parties = Parties(made.node, (), made.shared, scenario.protocols[self._name].protocol)

        try:
            return run_parties(
                scenario,
                self._name,
                self._seed,
                self._resolved,
                parties,
                made.conditions,
                report=report,
                execution=Execution(eager=True),
                conducting=partial(LiveConductor, self),
                path="live",
            )
        finally:
            if not self._world.over:  # it failed
                self._tell(Stopped(reason="failed"))
            self._tell(Done())

    def start(self, begin: Callable[[], None]) -> None:
        """Have all parties begin at one instant, in which their clocks are at 0."""
        at = self._host.loop.time() + LEAD_S
        self._tell(Start(in_s=LEAD_S, at=at, machine=machine()))
        self._world.begin_at(at, begin)

    def merged(self, outcome: Outcome, folder: Path) -> Outcome:
        """Add the clients' parts to the outcome, which notes parts that are not in ``folder`` or are damaged."""
        events, weights, absent = self._made.recorder.events, dict(outcome.weights), list[str]()
        orders = {SERVER: self._made.recorder.order}
        for client in self._resolved.clients:
            try:
                part = read_part(folder, client)
            except ResultsError:
                absent.append(party_name(client))
                continue
            events.extend(part.rows, part.kinds)
            weights |= part.weights
            orders[client] = part.order
        events.end_at(self._world.really(self._world.now()))
        counts = {**outcome.info.counts, "events": len(events)}
        info = outcome.info.model_copy(update={"counts": counts})
        lacking = f"without the events and weights of {', '.join(absent)}: no parts in {folder}" if absent else ""
        note = "; ".join(filter(None, [outcome.note, lacking, self._slip()]))
        extra = outcome.extra
        if self._made.recorder.keep == "events" and not absent and self._outages is None:
            extra = {**extra, ORDER: order_table(orders)}
        tables = tables_of(self._made.recorder)
        return dataclasses.replace(outcome, tables=tables, weights=weights, info=info, extra=extra, note=note)

    def _slip(self) -> str:
        """Say by how much the machine fell behind the times that it emulates, if it did."""
        slipped = self._world.slipped_s
        if not slipped or not self._emulated:
            return ""
        return f"this machine could not follow: the server's clock slipped by {slipped:.3g} s in all"

    def _tell(self, message: Control) -> None:
        for channel in self.channels:
            channel.control(message)

    def _tell_one(self, client: int, message: Control) -> None:
        self._clients[client].control(message)

    def _lost(self, client: int) -> None:
        self._ways.lost(client)

    def _on_message(self, client: int, timed: bool, body: bytes) -> None:
        message, at = self._made.reader.message(body, client, SERVER)
        if timed:
            self._world.deliver(partial(self._carry, message), at)
        else:
            self._world.deliver(partial(self._made.node.state.mailbox.deliver, message), at)

    def _carry(self, message: Message) -> None:
        """Put an upload on its emulated way."""
        self._ways.carry(message, self._made.shared.wires.size(message))

    def _arrive(self, message: Message) -> None:
        self._made.recorder.order.arrived(message)
        self._made.node.state.mailbox.deliver(message)

    def _on_control(self, client: int, message: Control) -> None:
        match message:
            case Counted():
                self._world.deliver(partial(self._counted, message.updates))
            case Passing():
                among = frozenset() if self._resolved.public is None else frozenset(self._clients)
                message_of = stand_in(message, client, self._made.reader.kinds, among)
                self._world.deliver(partial(self._ways.carry, message_of, message.size), message.at)
            case Withdrawn():
                self._world.deliver(partial(self._ways.withdraw, client, message.number))
            case WentDown():
                self._world.deliver(partial(self._ways.next_life, client))
            case Failed():
                error = RunError(message.what, message.where)
                self._world.deliver(lambda: self._world.fail(error, f"client {client}"))
            case Ready() | Written():
                raise RunError(f"client {client} sent a {message.kind!r} message in a run")
            case _:
                raise RunError(f"client {client} sent a {message.kind!r} message, which is the server's to send")

    def _counted(self, updates: int) -> None:
        if not self._world.over:
            self._made.shared.recorder.updates += updates
            if self._made.shared.progressed is not None:
                self._made.shared.progressed()
