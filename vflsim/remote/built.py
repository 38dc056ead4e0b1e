"""One party of a run, as its own process makes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from vflsim.errors import ScenarioError
from vflsim.learning.batches import BatchSequence, Split
from vflsim.learning.data.loaded import SPLITS, LoadedData
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.privacy.blinding.keys import KEY_BYTES
from vflsim.protocols import Protocol
from vflsim.protocols.capabilities import LabelSharing
from vflsim.protocols.defaults import participants_of
from vflsim.protocols.made import learners_of
from vflsim.remote.frames import Reader, kinds_of
from vflsim.remote.own_data import own_data
from vflsim.remote.wires import LiveWires
from vflsim.remote.world import LiveWorld
from vflsim.results.facts.conditions import Conditions
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import party_timings, setting
from vflsim.setting import Setting
from vflsim.simulation.build import party_clock
from vflsim.simulation.conditions import conditions_of
from vflsim.streams import SERVER
from vflsim.timing.availability import Always
from vflsim.world.mailbox import Mailbox
from vflsim.world.messages import Message
from vflsim.world.node import Node
from vflsim.world.party import Draws, Party, RunContext
from vflsim.world.record import Recorder
from vflsim.world.transport import Transport


def refuse_unfit(scenario: Scenario, names: list[str]) -> None:
    """Raise ``ScenarioError`` for the first protocol that cannot run live, with the reason."""
    for name in names:
        if why := _unfit(scenario, name):
            allowed = "protocols whose parties share nothing but messages with the server"
            raise ScenarioError(f"{name} cannot run live: {why}", f"protocols.{name}", allowed, "leave it out")


def _unfit(scenario: Scenario, name: str) -> str:
    protocol, stop = scenario.protocols[name].protocol, scenario.stop_of(name)
    participants = party_timings(scenario)[1:]
    if not participants_of(protocol, scenario.clients, scenario.symbols):
        return "no client takes part in it"
    if protocol.traits.reference:
        return "it is a reference, without parties"
    if protocol.traits.runs_on_cpu:
        return "its clients send each other shares, and live clients are connected to the server alone"
    if scenario.protocols[name].mechanism is not None:
        return "noise would follow from the scenario's public seed"
    if any(not isinstance(timing.availability, Always) for timing in participants):
        return "clients go down in this scenario"
    if scenario.record.views is not None:
        return "the scenario records what parties see (record.views)"
    if stop.epsilon is not None:
        return "stop.epsilon asks for noise"
    return ""


def parts_of(protocol: Protocol, party: int) -> tuple[Split, ...]:
    """Return the splits of which a party holds the labels: the server of all, a client of ``train`` by its protocol."""
    if party == SERVER:
        return SPLITS
    return ("train",) if isinstance(protocol, LabelSharing) and protocol.labels_at_clients else ()


def own_setting(scenario: Scenario, name: str, data: LoadedData, party: int) -> Setting:
    """Resolve a protocol for one party, with its data alone."""
    return setting(scenario, name, own_data(data, party, parts_of(scenario.protocols[name].protocol, party)))


@dataclass(frozen=True, slots=True)
class OwnParty:
    """A node, what its process shares with nobody, and what reads the messages that come to it."""

    node: Node
    shared: RunContext
    setting: Setting
    reader: Reader
    wires: LiveWires
    conditions: Conditions


def own_party(
    scenario: Scenario,
    name: str,
    seed: int,
    resolved: Setting,
    party: int,
    world: LiveWorld,
    boxes: Callable[[int], Mailbox],
    transport: Callable[[Recorder], Transport],
) -> OwnParty:
    """Make one party of a run in ``world``: its learner alone is kept.

    ``boxes`` gives what takes the messages to another party, ``transport`` what moves messages.
    """
    protocol, training = scenario.protocols[name].protocol, resolved.training
    learners = learners_of(protocol, resolved, seed)
    clients = [learners.clients[client] for client in resolved.clients]
    conditions = conditions_of(protocol, resolved, learners.server, clients)
    learner: PartyLearner = learners.server if party == SERVER else learners.clients[party]
    del learners, clients
    if learner.blinder is not None:
        learner.blinder.has(os.urandom(KEY_BYTES))
    recorder = Recorder(scenario.record.tables)
    wires = LiveWires(resolved.codec, world.executor, seed)
    sequence = protocol.batch_plan().batches(resolved.data.rows, training, seed)
    mailboxes = {other: boxes(other) for other in (SERVER, *resolved.clients) if other != party}
    shared = RunContext(
        world, transport(recorder), recorder, wires, resolved.clients, sequence, mailboxes,
        protocol=type(protocol).__name__,
    )  # fmt: skip
    own = BatchSequence(resolved.data.rows, training, seed, party) if training.batches == "own" else sequence
    state = Party(party, shared, party_clock(resolved.timings[party], seed, party), Draws(seed, party), own)
    modules = {base.__module__ for base in type(protocol).__mro__}
    modules |= {module.rpartition(".")[0] + ".messages" for module in modules}
    reader = Reader(
        kinds_of(modules),
        {sequence.origin: sequence},
        resolved.data.rows,
        frozenset({SERVER, *resolved.clients}),
        wires,
    )
    node: Node = Node(state, learner, None)
    return OwnParty(node, shared, resolved, reader, wires, conditions)


class RemoteBox(Mailbox):
    """The mailbox of a party in another process: what is delivered is sent there."""

    def __init__(self, world: LiveWorld, send: Callable[[Message], None]) -> None:
        super().__init__(world)
        self._send = send

    def deliver(self, message: Message) -> None:
        """Send the message."""
        self._send(message)
