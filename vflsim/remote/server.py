"""The server of a live run, in its own process."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from vflsim.errors import ResultsError, RunError
from vflsim.learning.randomness import drawing_from
from vflsim.remote.built import OwnParty, RemoteBox, own_party, own_setting
from vflsim.remote.channel import Admission, Channel, LostError
from vflsim.remote.control import (
    Bye,
    Control,
    Counted,
    Done,
    EvaluateNow,
    Failed,
    Prepare,
    Ready,
    Start,
    Stopped,
    Withdrawn,
    Written,
)
from vflsim.remote.frames import pack_message
from vflsim.remote.machine import digest_of, largest_frame, machine, version, warm_up
from vflsim.remote.parts import read_part
from vflsim.remote.world import LiveWorld, precise_loop
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Scenario
from vflsim.simulation.build import Parties
from vflsim.simulation.conductor import Conductor, Progress
from vflsim.simulation.execution import Execution
from vflsim.simulation.run import Outcome, run_parties, tables_of
from vflsim.streams import SERVER, SHARED, party_name, torch_seed
from vflsim.world.messages import Message
from vflsim.world.transfers import Transfer
from vflsim.world.transport import Transport

LEAD_S = 0.2
"""Seconds from the order to start until the clocks of all parties are at 0."""


class LiveConductor(Conductor):
    """Evaluates and ends a live run: clients are asked over their connections, in order with the protocol's messages.

    Invariant: a client answers an evaluation with the weights that it has before it reads any message that the server
    has sent after the evaluation was due.
    """

    def __init__(self, run: _ServerRun, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._run = run
        self._announced = 0

    @override
    def start(self, begin: Callable[[], None]) -> None:
        super().start(partial(self._run.start, begin))

    @override
    def _set_timer(self) -> None:
        """Leave it to ``set_timer``: the clock begins after the initial evaluation."""

    def set_timer(self) -> None:
        """Have the run end by its time."""
        super()._set_timer()

    @override
    def _spawn_answering(self, free: bool) -> None:
        if self._announced != self._number:
            self._announce(self._number, free)

    def _announce(self, number: int, free: bool) -> None:
        self._announced = number
        asked = EvaluateNow(number=number, splits=self._splits, free=free, wired=self._wired)
        for channel in self._run.channels:
            channel.control(asked)

    @override
    def _on_progress(self) -> None:
        before = self._last_count
        super()._on_progress()
        if self._last_count != before and self._announced == self._number:
            self._announce(self._number + 1, free=not self._every.costs_time)


class _ServerRun:
    """One live run: the server's party, and what it makes of the clients' frames."""

    def __init__(self, server: LiveServer, name: str, seed: int) -> None:
        self._server, self._name, self._seed = server, name, seed
        scenario = server.scenario
        data = server.data.of(scenario.training_of(name))
        self._resolved = own_setting(scenario, name, data, SERVER)
        self._world = world = LiveWorld(server.loop)
        taking_part = {client: server.gate.channels[client] for client in self._resolved.clients}
        self.channels = list(taking_part.values())
        made: list[OwnParty] = []

        def send(channel: Channel, message: Message) -> None:
            channel.message(pack_message(message, made[0].wires), timed=True)

        with drawing_from(torch_seed(seed, SHARED, "learners")):
            made.append(
                own_party(
                    scenario,
                    name,
                    seed,
                    self._resolved,
                    SERVER,
                    world,
                    lambda client: RemoteBox(world, partial(send, taking_part[client])),
                    lambda recorder: Transport(
                        world,
                        self._resolved.network,
                        [timing.link for timing in self._resolved.timings],
                        seed,
                        recorder,
                    ),
                )
            )
        self._made = made[0]
        self._arriving: dict[int, dict[int, Transfer]] = {client: {} for client in taking_part}
        self._count = dict.fromkeys(taking_part, 0)
        self._conductor: LiveConductor | None = None
        world.on_finish = lambda reason: self._tell(Stopped(reason=reason))
        for client, channel in taking_part.items():
            channel.attend(
                partial(self._on_control, client),
                lambda error: world.deliver(lambda: world.fail(error, "the connection")),
                partial(self._on_message, client),
            )

    def play(self, report: Callable[[Progress], None] | None) -> Outcome:
        """Run until a stop rule ends it; what clients record themselves is not in the outcome."""
        scenario, made = self._server.scenario, self._made
        parties = Parties(made.node, (), made.shared, scenario.protocols[self._name].protocol)

        def conducting(*arguments: Any, **named: Any) -> Conductor:
            self._conductor = LiveConductor(self, *arguments, **named)
            return self._conductor

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
                conducting=conducting,
                path="live",
            )
        finally:
            if not self._world.over:  # it failed
                self._tell(Stopped(reason="failed"))
            self._tell(Done())

    def start(self, begin: Callable[[], None]) -> None:
        """Have all parties begin at one instant, in which their clocks are at 0."""
        assert self._conductor is not None, "the conductor starts the run"
        conductor, loop = self._conductor, self._server.loop
        at = loop.time() + LEAD_S
        self._tell(Start(in_s=LEAD_S, at=at, machine=machine()))

        def started() -> None:
            conductor.set_timer()
            begin()

        self._world.begin_at(at, started)

    def merged(self, outcome: Outcome, folder: Path) -> Outcome:
        """Add the clients' parts to the outcome, which notes parts that are not in ``folder`` or are damaged."""
        events, weights, absent = self._made.shared.recorder.events, dict(outcome.weights), list[str]()
        for client in self._resolved.clients:
            try:
                part = read_part(folder, client)
            except ResultsError:
                absent.append(party_name(client))
                continue
            events.extend(part.rows, part.kinds)
            weights |= part.weights
        events.end_at(self._world.now())
        counts = {**outcome.info.counts, "events": len(events)}
        info = outcome.info.model_copy(update={"counts": counts})
        lacking = f"without the events and weights of {', '.join(absent)}: no parts in {folder}" if absent else ""
        note = "; ".join(filter(None, [outcome.note, lacking]))
        tables = tables_of(self._made.shared.recorder)
        return dataclasses.replace(outcome, tables=tables, weights=weights, info=info, note=note)

    def _tell(self, message: Control) -> None:
        for channel in self.channels:
            channel.control(message)

    def _on_message(self, client: int, timed: bool, body: bytes) -> None:
        message = self._made.reader.message(body, client, SERVER)
        if timed:
            self._world.deliver(partial(self._carry, client, message))
        else:
            self._world.deliver(partial(self._made.node.state.mailbox.deliver, message))

    def _carry(self, client: int, message: Message) -> None:
        """Put an upload on its emulated way."""
        shared, arriving = self._made.shared, self._arriving[client]
        message.sent = self._world.instant
        for number in [number for number, transfer in arriving.items() if not transfer.under_way]:
            del arriving[number]
        arriving[self._count[client]] = shared.transport.send(
            message, shared.wires.size(message), self._made.node.state.mailbox.deliver
        )
        self._count[client] += 1

    def _on_control(self, client: int, message: Control) -> None:
        match message:
            case Counted():
                self._world.deliver(partial(self._counted, message.updates))
            case Withdrawn():
                self._world.deliver(partial(self._withdraw, client, message.number))
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

    def _withdraw(self, client: int, number: int) -> None:
        transfer = self._arriving[client].pop(number, None)
        if transfer is not None:
            self._made.shared.transport.abandon(transfer)


class LiveServer:
    """The server's process: lets all clients connect, runs one run after the other, and says goodbye.

    ``parts`` is the folder into which clients of this machine write what they record. Errors name the party.

    Example::

        server = LiveServer(scenario, Path("identities/server"), Path("parts"), timeout=30.0)
        port = server.open("127.0.0.1", 0)
        server.wait(within=60.0)
        outcome = server.run("wait", seed=0)
        server.close()
    """

    def __init__(self, scenario: Scenario, identity: Path, parts: Path, timeout: float) -> None:
        self.scenario, self._parts, self._timeout = scenario, parts, timeout
        self.data = ScenarioData(scenario)
        self.loop = precise_loop()
        most = largest_frame(scenario, self.data)
        warm_up()
        clients = frozenset(range(1, scenario.clients + 1))
        self.gate = Admission(identity, clients, digest_of(scenario), version(), most, timeout)

    def open(self, host: str, port: int) -> int:
        """Listen at an address; port 0 chooses a free one. Returns the port. Raises ``RunError``."""
        return self.loop.run_until_complete(self.gate.open(host, port))

    def wait(self, within: float) -> None:
        """Wait until all clients are here. Raises ``LostError`` that names those who are not."""
        self.loop.run_until_complete(self.gate.all_here(within))

    def run(self, name: str, seed: int, report: Callable[[Progress], None] | None = None) -> Outcome:
        """Run a protocol with a seed, and merge what the clients have recorded.

        Raises ``LostError`` if a client is lost before the run begins; errors of the run itself are in the outcome.
        """
        scenario = self.scenario
        clients = scenario_clients(scenario, name)
        asked = self._answers(clients, Ready)
        for client in clients:
            self.gate.channels[client].control(Prepare(protocol=name, seed=seed))
        self.loop.run_until_complete(asked)
        run = _ServerRun(self, name, seed)
        outcome = run.play(report)
        here = tuple(client for client in clients if self.gate.channels[client].lost is None)
        self.loop.run_until_complete(self._answers(here, Written))
        if outcome.error is not None:
            return outcome
        return run.merged(outcome, self._parts / name / f"seed-{seed}")

    def close(self) -> None:
        """Say goodbye to all clients, and end."""
        for channel in self.gate.channels.values():
            channel.control(Bye())
        self.loop.run_until_complete(self.gate.close())
        self.loop.close()

    def _answers(self, clients: tuple[int, ...], kind: type[Control]) -> asyncio.Future[None]:
        """Return a future that ends when all these clients have sent a control message of a kind."""
        missing, ended = set(clients), self.loop.create_future()
        if not missing:
            ended.set_result(None)

        def take(client: int, message: Control) -> None:
            if isinstance(message, kind):
                missing.discard(client)
            elif isinstance(message, Failed) and not ended.done():
                ended.set_exception(RunError(message.what, message.where or f"client {client}"))
            if not missing and not ended.done():
                ended.set_result(None)

        def lose(error: LostError) -> None:
            if not ended.done():
                ended.set_exception(error)

        for client in clients:
            self.gate.channels[client].attend(partial(take, client), lose, lambda _timed, _body: None)
        return ended


def scenario_clients(scenario: Scenario, name: str) -> tuple[int, ...]:
    """Return the participants of a protocol."""
    from vflsim.protocols.defaults import participants_of

    return tuple(participants_of(scenario.protocols[name].protocol, scenario.clients, scenario.symbols))
