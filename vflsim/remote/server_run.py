"""One live run, as the server's process plays it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol

from vflsim.errors import RunError
from vflsim.protocol import SERVER, SHARED, Message, party_name, torch_seed
from vflsim.remote.admission import Admission, Restarts, Returns
from vflsim.remote.channel import Channel, GoneError, LostError
from vflsim.remote.client_files import with_parts
from vflsim.remote.control import (
    Away,
    Back,
    Control,
    Counted,
    Done,
    EvaluateNow,
    Failed,
    Introduced,
    NoiseAdded,
    Passing,
    Peer,
    Prepare,
    Ready,
    Spent,
    Start,
    Stopped,
    Voucher,
    WentDown,
    Withdrawn,
    Written,
)
from vflsim.remote.frames import pack_message
from vflsim.remote.message_checks import ReleaseCounts, Unread
from vflsim.remote.orders import LiveConductor
from vflsim.remote.outages import ServerOutages
from vflsim.remote.party import Public, RemoteBox, emulated, local_party
from vflsim.remote.private_data import PrivateData
from vflsim.remote.transport import ClientTransfers, stand_in
from vflsim.remote.world import LiveWorld, machine
from vflsim.scenario import Scenario, setting
from vflsim.worlds import (
    EventRun,
    Execution,
    Outcome,
    Parties,
    Progress,
    RunPlan,
    Transport,
    drawing_from,
    interruptible_of,
)


class Host(Protocol):
    """What a run asks of the server's process."""

    scenario: Scenario
    data: PrivateData
    loop: asyncio.AbstractEventLoop
    admission: Admission
    timeout: float
    returns: bool

    @property
    def connected(self) -> Mapping[int, Channel]:
        """The connections to all clients, by their numbers."""


LEAD_S = 0.2
"""Seconds from the order to start until the clocks of all parties are at 0."""


class ServerRun:
    """One live run: the server's party, and what it makes of the clients' frames.

    Where the scenario has a client crash (``interrupted: lost``), its process may go, and another may take its place.
    ``public``: the facts that all clients have told; None where they are connected to the server alone. ``vouchers``:
    those for the clients' public keys, if they blind. ``peers``: where clients are that are connected to each other.
    """

    def __init__(
        self,
        host: Host,
        announced: Prepare,
        public: Public | None = None,
        vouchers: Sequence[Voucher] = (),
        peers: Sequence[Peer] = (),
    ) -> None:
        name, seed, self._vouchers = announced.protocol, announced.seed, vouchers
        self._host, self._name, self._seed, self._announced = host, name, seed, announced
        scenario = host.scenario
        self._resolved = dataclasses.replace(setting(scenario, name, host.data.of(name)), public=public)
        self._emulated = emulated(self._resolved)
        self._world = world = LiveWorld(host.loop, self._emulated)
        self._clients = {client: host.connected[client] for client in self._resolved.clients}
        self._asked: dict[int, deque[list[EvaluateNow | bytes]]] = {client: deque(maxlen=2) for client in self._clients}
        interruptible = interruptible_of(self._resolved)
        self._outages = (
            ServerOutages(interruptible, seed, self._tell_one, lambda: self._ways.drop_lost())
            if interruptible
            else None
        )
        gates = {} if self._outages is None else self._outages.gates()
        links = [timing.link for timing in self._resolved.timings]
        with drawing_from(torch_seed(seed, SHARED, "learners")):
            self._made = local_party(
                scenario, name, seed, self._resolved, SERVER, world,
                lambda _: RemoteBox(world, partial(self._send, timed=True)),
                lambda recorder: Transport(
                    world,
                    self._resolved.network,
                    links,
                    seed,
                    recorder,
                    gates,
                    self._resolved.transport,
                    self._resolved.timings[SERVER].concurrency,
                ),
                partial(self._send, timed=False),
                self._outages,
            )  # fmt: skip
        self._released = ReleaseCounts(self._resolved, seed, self._made.shared.sequence)
        self._ways = ClientTransfers(
            world,
            self._made.shared.transport,
            self._resolved.clients,
            {} if self._outages is None else self._outages.crashes,
            self._arrive,
            self._tell_one if self._emulated else lambda _client, _message: None,
        )
        box, expected = self._made.node.state.mailbox, self._made.expected
        self._unread = Unread(
            lambda: chain((each for each, _ in box.unread()), self._ways.under_way()), expected.most_held
        )
        self._uploads = Counter[int]()
        world.on_finish = lambda reason: self._tell(Stopped(reason=reason))
        self._began = 0.0
        self._returns = Returns(
            host.loop.call_later,
            host.timeout,
            lambda: self._made.recorder.current_round,
            partial(self._end_by, "the connection"),
        )
        self._comebacks = Restarts(announced, peers, self._tell_one, lambda client: self._clients[client].hosts[1])
        for client in self._clients:
            self._attend(client)

    def _send(self, message: Message, timed: bool) -> None:
        """Send a message of the protocol; keep those about evaluations for a client that comes back."""
        body, receiver = pack_message(message, self._made.wires, self._world.instant), message.receiver
        if receiver not in self._returns:  # its new process may be here, and could not use it yet
            self._clients[receiver].message(body, timed)
        if not timed and self._asked[receiver]:
            self._asked[receiver][-1].append(body)

    def _attend(self, client: int) -> None:
        self._clients[client].attend(
            partial(self._on_control, client), partial(self._gone, client), partial(self._on_message, client)
        )

    def play(self, report: Callable[[Progress], None] | None) -> Outcome:
        """Run until a stop rule ends it; what clients record themselves is not in the outcome."""
        scenario, made = self._host.scenario, self._made
        protocol = scenario.protocols[self._name].protocol
        parties = Parties(made.node, (), made.shared, protocol, remote_releases=self._released.of_all)
        plan = RunPlan(
            scenario, self._name, self._seed, self._resolved,
            execution=Execution(eager=True), path="live", conditions=made.conditions,
        )  # fmt: skip
        admission = self._host.admission
        admission.on_return = self._come_back
        try:
            return EventRun(
                plan, parties, report=report, conducting=partial(LiveConductor, self._ask, self._start)
            ).play()
        finally:
            admission.on_return = None
            admission.expected.clear()
            self._returns.close()
            if not self._world.over:  # it failed
                self._tell(Stopped(reason="failed"))
            self._tell(Done())

    def _start(self, begin: Callable[[], None]) -> None:
        """Have all parties begin at one instant, in which their clocks are at 0."""
        at = self._began = self._host.loop.time() + LEAD_S
        self._tell(Start(in_s=LEAD_S, at=at, machine=machine()))
        self._world.begin_at(at, begin)

    def _ask(self, asked: EvaluateNow) -> None:
        """Have all clients answer an evaluation; one that comes back answers the latest ones then."""
        for client, channel in self._clients.items():
            self._asked[client].append([asked])
            if client not in self._returns:
                channel.control(asked)

    def merged(self, outcome: Outcome, folder: Path) -> Outcome:
        """Add the clients' parts to the outcome, which notes parts that are not in ``folder`` or are damaged."""
        end = self._world.really(self._world.now())
        outcome = with_parts(outcome, self._made, folder, self._announced.run, end, ordered=self._outages is None)
        return dataclasses.replace(outcome, note="; ".join(filter(None, [outcome.note, self._slip()])))

    def _slip(self) -> str:
        """Say by how much the machine fell behind the times that it emulates, if it did."""
        slipped = self._world.slipped_s
        if not slipped or not self._emulated:
            return ""
        return f"this machine could not follow: the server's clock slipped by {slipped:.3g} s in all"

    def _end_by(self, what: str, error: RunError) -> None:
        self._world.deliver(lambda: self._world.fail(error, what))

    def _gone(self, client: int, error: LostError) -> None:
        """Take the end of a connection: as a crash, where the scenario has the client crash and it can come back."""
        if not isinstance(error, GoneError) or not self._began:
            self._end_by("the connection", error)
        elif why := self._stays_away(client):
            what = f"{error.what}, and {party_name(client)} cannot come back: {why}"
            self._end_by("the connection", LostError(what, remedy=error.remedy))
        else:
            assert self._outages is not None, "the client crashes in the scenario"
            self._returns.wait_for(client, error)
            self._host.admission.expected.add(client)
            self._comebacks.done(client)
            since = self._since_start()
            self._tell_others(client, Away(party=client, at=since))
            self._world.deliver(partial(self._outages.away, client), since)

    def _stays_away(self, client: int) -> str:
        if self._outages is None or client not in self._outages.losing:
            return "no availability of it in this scenario has interrupted: lost"
        if not self._host.returns:
            return "vflsim live starts each client once"
        return self._made.stays_away

    def _come_back(self, client: int) -> None:
        self._clients[client] = self._host.connected[client]
        self._attend(client)
        self._comebacks.came(client)

    def _go_on(self, client: int, unreached: Collection[int] = ()) -> None:
        """Have a client that has come back go on, unless it could not connect to another one that is here."""
        if client not in self._returns or self._outages is None:
            raise RunError(f"client {client} sent a 'ready' message in a run")
        if cut_off := [other for other in unreached if other not in self._returns]:
            self._end_by("the connection", LostError(f"client-{client} cannot reach client-{cut_off[0]}"))
            return
        self._returns.here(client)
        self._host.admission.expected.discard(client)
        self._comebacks.done(client)
        self._ways.begin_again(client, self._comebacks.first(client))
        since = self._since_start()
        self._tell_others(client, Back(party=client, at=since))
        for other in self._clients if self._resolved.public is not None else ():
            if other in self._returns:
                self._tell_one(client, Away(party=other, at=since))
        for voucher in self._vouchers:
            if voucher.party != client:
                self._tell_one(client, voucher)
        self._tell_one(client, Start(in_s=0.0, at=self._began, machine=machine(), since_s=since))
        for one in [each for asked in self._asked[client] for each in asked]:
            if isinstance(one, bytes):
                self._clients[client].message(one, timed=False)
            else:
                self._tell_one(client, one)
        if self._world.over:
            self._tell_one(client, Stopped(reason="over"))
        self._world.deliver(partial(self._outages.here, client), since)

    def _since_start(self) -> float:
        return max(0.0, self._host.loop.time() - self._began)

    def _tell(self, message: Control) -> None:
        for channel in self._clients.values():
            channel.control(message)

    def _tell_others(self, client: int, message: Control) -> None:
        """Tell the others that are in the run, where they are connected to this client."""
        for other in self._clients if self._resolved.public is not None else ():
            if other != client and other not in self._returns:
                self._tell_one(other, message)

    def _tell_one(self, client: int, message: Control) -> None:
        self._clients[client].control(message)

    def _on_message(self, client: int, timed: bool, body: bytes) -> None:
        message, at = self._made.reader.message(body, client, SERVER)
        self._unread.add(message)
        if timed:
            self._uploads[client] += 1
            self._world.deliver(lambda: self._ways.carry(message, self._made.shared.wires.size(message)), at)
        else:
            self._world.deliver(partial(self._made.node.state.mailbox.deliver, message), at)

    def _arrive(self, message: Message) -> None:
        self._made.recorder.order.arrived(message)
        self._made.node.state.mailbox.deliver(message)

    def _on_control(self, client: int, message: Control) -> None:
        match message:
            case Counted():
                self._world.deliver(partial(self._counted, message.updates))
            case NoiseAdded():
                crashes = 0 if self._outages is None else self._outages.crashes[client]
                due = self._uploads[client] + self._made.recorder.current_round + crashes
                self._released.take(client, message, due)
            case Spent() if self._host.scenario.stop_of(self._name).epsilon is not None:
                self._world.deliver(partial(self._world.finish, "epsilon"), message.at)
            case Passing():
                self._made.expected.check_passing(client, message)
                among = frozenset() if self._resolved.public is None else frozenset(self._clients)
                message_of = stand_in(message, client, self._made.reader.kinds, among)
                self._world.deliver(partial(self._ways.carry, message_of, message.size), message.at)
            case Withdrawn():
                self._world.deliver(partial(self._ways.withdraw, client, message.number))
            case WentDown():
                self._world.deliver(partial(self._ways.next_life, client))
            case Failed():
                self._end_by(f"client {client}", RunError(message.what, message.where))
            case Introduced():
                self._comebacks.introduced(client, message, [each for each in self._clients if each in self._returns])
            case Ready():
                self._go_on(client, message.unreached)
            case Written() | Spent():
                raise RunError(f"client {client} sent a {message.kind!r} message in a run")
            case _:
                raise RunError(f"client {client} sent a {message.kind!r} message, which is the server's to send")

    def _counted(self, updates: int) -> None:
        if not self._world.over:
            self._made.shared.recorder.updates += updates
            if self._made.shared.progressed is not None:
                self._made.shared.progressed()
