"""One party of a run, as its own process makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor
from typing_extensions import override

from vflsim.errors import ScenarioError
from vflsim.protocol import SERVER, BatchSequence, Delay, Message, Node, PartyLearner, Peering, Protocol, Setting
from vflsim.remote.control import ControlError
from vflsim.remote.frames import LiveWires, Reader, kinds_of
from vflsim.remote.message_checks import Expected
from vflsim.remote.recorder import LiveRecorder
from vflsim.remote.world import LiveWorld
from vflsim.scenario import PartyTiming, Scenario
from vflsim.worlds import (
    Conditions,
    Draws,
    Mailbox,
    Outages,
    Party,
    Recorder,
    RunContext,
    Transport,
    Watch,
    World,
    brings_code,
    conditions_of,
    drawing_apart,
    encrypts,
    learners_of,
    party_clock,
)

Public: TypeAlias = Mapping[int, Mapping[str, float]]
"""The facts of all clients of a run, in client order."""


def checked_facts(protocol: Peering, facts: Mapping[str, float]) -> Mapping[str, float]:
    """Return what a client has told. Raises ``ControlError`` unless these are the protocol's facts."""
    if facts.keys() != set(protocol.facts_told):
        raise ControlError(f"the facts {sorted(facts)}", allowed=f"{sorted(protocol.facts_told)}")
    return facts


class LiveDraws(Draws):
    """Draws that another process can go on with: ``begun`` is how often each purpose has been drawn."""

    def __init__(self, seed: int, party: int) -> None:
        super().__init__(seed, party)
        self.begun: dict[str, int] = {}
        self._go_on: dict[str, int] = {}

    @override
    def next(self, purpose: str, delay: Delay, now: float = 0.0) -> tuple[int, float]:
        for _ in range(self._go_on.pop(purpose, 0)):
            super().next(purpose, delay, now)
        index, drawn = super().next(purpose, delay, now)
        self.begun[purpose] = index + 1
        return index, drawn

    def go_on(self, begun: Mapping[str, int]) -> None:
        """Go on where another party's ``begun`` has stood. Nothing must have been drawn."""
        self.begun, self._go_on = dict(begun), dict(begun)


class LiveParty(Party):
    """A party that sends what takes no time by ``free``, past the network."""

    free: Callable[[Message], None]
    draws: LiveDraws

    @override
    def deliver(self, message: Message) -> None:
        self.free(message)

    def under_way(self) -> dict[str, Tensor]:
        """Return the secret of its codec's noise."""
        return {"secret": torch.frombuffer(bytearray(self._live_wires.secret), dtype=torch.uint8)}

    def take_up(self, under_way: Mapping[str, Tensor]) -> None:
        """Take up what ``under_way`` has returned in another process."""
        self._live_wires.secret = under_way["secret"].numpy().tobytes()

    @property
    def _live_wires(self) -> LiveWires:
        wires = self.run.wires
        assert isinstance(wires, LiveWires), "it has been made so"
        return wires

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how often it has drawn, encoded and taken batches."""
        return {"draws": dict(self.draws.begun), "encoded": dict(self.wire.encoded), "batches": {"begun": self._begun}}

    def go_on(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Go on where another party's ``counts`` have stood."""
        self.draws.go_on(counts["draws"])
        self.wire.encoded.update(counts["encoded"])
        self._begun = counts["batches"]["begun"]


class LocalBox(Mailbox):
    """The mailbox of this process's party. Messages outside time, of evaluations, stay in it when the party crashes."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._free: list[Message] = []

    def deliver_free(self, message: Message) -> None:
        """Take in a message outside time."""
        self._free = [*self._here(self._free), message]
        self.deliver(message)

    @override
    def clear(self) -> None:
        self._free = self._here(self._free)
        super().clear()
        here = self._here(self._free)
        self.give_back([message for message in self._free if message not in here])

    def _here(self, some: list[Message]) -> list[Message]:
        wanted = {id(message) for message in some}
        return [message for message, _ in self.unread() if id(message) in wanted]


class RemoteBox(Mailbox):
    """The mailbox of a party in another process: what is delivered is sent there."""

    def __init__(self, world: World, send: Callable[[Message], None]) -> None:
        super().__init__(world)
        self._send = send

    @override
    def deliver(self, message: Message) -> None:
        """Send the message."""
        self._send(message)


def refuse_unfit(scenario: Scenario) -> None:
    """Raise ``ScenarioError`` for the first protocol that cannot run live."""
    for name in scenario.protocols:
        if why := _unfit(scenario, name):
            allowed = "protocols whose parties share nothing but messages"
            raise ScenarioError(f"{name} cannot run live: {why}", f"protocols.{name}", allowed, "leave it out")


def _unfit(scenario: Scenario, name: str) -> str:
    protocol = scenario.protocols[name].protocol
    if not scenario.participants_of(name):
        return "no client takes part in it"
    if protocol.traits.reference:
        return "it is a reference, without parties"
    if protocol.traits.refuses_live:
        return protocol.traits.refuses_live
    if protocol.traits.in_the_clear or encrypts(scenario.codec_of(name)):
        return "its encryption is a cost alone, and values would pass in the clear"
    if type(protocol).placed is not Protocol.placed:
        return "it places its parties itself (placed), in one process"
    if isinstance(protocol, Peering) and (why := protocol.needs_one_process()):
        return why
    if scenario.record.views is not None:
        return "the scenario records what parties see (record.views)"
    return ""


def emulated(setting: Setting) -> bool:
    """Return whether anything takes a time that the scenario says."""
    return setting.network.latency is not None or any(timing != PartyTiming() for timing in setting.timings)


@dataclass(frozen=True, slots=True)
class LocalParty:
    """A node, what its process shares with nobody, and what reads the messages that come to it."""

    node: Node
    shared: RunContext
    setting: Setting
    reader: Reader
    expected: Expected
    recorder: LiveRecorder
    wires: LiveWires
    conditions: Conditions
    stays_away: str
    """Why no other process can take the place of a client's; empty if one can."""


def local_party(
    scenario: Scenario,
    name: str,
    seed: int,
    resolved: Setting,
    party: int,
    world: LiveWorld,
    boxes: Callable[[int], Mailbox],
    transport: Callable[[Recorder], Transport],
    free: Callable[[Message], None],
    outages: Outages | None,
) -> LocalParty:
    """Make one party of a run in ``world``: its learner alone is kept.

    ``boxes`` gives what takes the messages to another party, ``transport`` what moves messages, ``free`` sends one
    outside time. ``outages`` are those that this process knows of.
    """
    protocol, training = scenario.protocols[name].protocol, resolved.training
    learners = learners_of(protocol, resolved, seed)
    clients = [learners.clients[client] for client in resolved.clients]
    conditions = conditions_of(protocol, resolved, learners.server, clients)
    brings = brings_code(protocol, resolved)
    stays_away = "code of your own may remember what is in no file" if brings else ""
    learner: PartyLearner = learners.server if party == SERVER else learners.clients[party]
    del learners, clients
    learner.draw_secrets()
    recorder = LiveRecorder(scenario.record.tables, party, world.really)
    if powers := resolved.powers:
        recorder.count_energy(powers, lambda: world.instant)
    world.on_leftover = recorder.leftover
    wires = LiveWires(resolved.codec, world.executor, seed)
    sequence = protocol.batch_plan().batches(resolved.data.rows, training, seed)
    mailboxes = {other: boxes(other) for other in (SERVER, *resolved.clients) if other != party}
    mailboxes[party] = LocalBox(world)
    shared = RunContext(
        world, transport(recorder), recorder, wires, resolved.clients, sequence, mailboxes,
        outages=outages, protocol=type(protocol).__name__,
    )  # fmt: skip
    batches = BatchSequence(resolved.data.rows, training, seed, party) if training.batches == "own" else sequence
    state = LiveParty(party, shared, party_clock(resolved.timings[party], seed, party), LiveDraws(seed, party), batches)
    state.free = free
    modules = {base.__module__ for base in type(protocol).__mro__}
    modules |= {module.rpartition(".")[0] + ".messages" for module in modules}
    expected = Expected(protocol, resolved, seed, party, mailboxes[party], recorder, scenario.stop_of(name).rounds)
    reader = Reader(
        kinds_of(modules),
        {sequence.origin: sequence},
        resolved.data.rows,
        frozenset({SERVER, *resolved.clients}),
        wires,
        expected,
    )
    watch = None
    if brings:
        world.executor.around = partial(drawing_apart, resolved.device)
        watch = Watch(learner, seed)
    node: Node = Node(state, learner, watch)
    return LocalParty(node, shared, resolved, reader, expected, recorder, wires, conditions, stays_away)
