"""One party of a run, as its own process makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from vflsim.errors import ScenarioError
from vflsim.learning.batches import BatchSequence
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.watch import Watch
from vflsim.learning.randomness import drawing_apart
from vflsim.protocols import Protocol
from vflsim.protocols.capabilities import OwnNodes, Peering
from vflsim.protocols.defaults import participants_of
from vflsim.protocols.hook_checks import learners_of
from vflsim.remote.expected import Expected
from vflsim.remote.frames import Reader, kinds_of
from vflsim.remote.live_party import LiveDraws, LiveParty, OwnBox
from vflsim.remote.recorder import LiveRecorder
from vflsim.remote.wires import LiveWires
from vflsim.remote.world import LiveWorld
from vflsim.results.facts import Conditions
from vflsim.scenario.models import Scenario
from vflsim.setting import Setting
from vflsim.simulation.build import brings_code, party_clock
from vflsim.simulation.conditions import conditions_of
from vflsim.streams import SERVER
from vflsim.timing.party import PartyTiming
from vflsim.world.mailbox import Mailbox
from vflsim.world.messages import Message
from vflsim.world.node import Node
from vflsim.world.outages import Outages
from vflsim.world.party import RunContext
from vflsim.world.record import Recorder
from vflsim.world.transport import Transport


def refuse_unfit(scenario: Scenario) -> None:
    """Raise ``ScenarioError`` for the first protocol that cannot run live."""
    for name in scenario.protocols:
        if why := _unfit(scenario, name):
            allowed = "protocols whose parties share nothing but messages"
            raise ScenarioError(f"{name} cannot run live: {why}", f"protocols.{name}", allowed, "leave it out")


def _unfit(scenario: Scenario, name: str) -> str:
    protocol = scenario.protocols[name].protocol
    if not participants_of(protocol, scenario.clients, scenario.symbols):
        return "no client takes part in it"
    if protocol.traits.reference:
        return "it is a reference, without parties"
    if isinstance(protocol, OwnNodes):
        return "it places its parties itself (OwnNodes), in one process"
    if isinstance(protocol, Peering) and (why := protocol.needs_one_process()):
        return why
    if scenario.record.views is not None:
        return "the scenario records what parties see (record.views)"
    return ""


def emulated(setting: Setting) -> bool:
    """Return whether anything takes a time that the scenario says."""
    return setting.network.latency is not None or any(timing != PartyTiming() for timing in setting.timings)


@dataclass(frozen=True, slots=True)
class OwnParty:
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


def own_party(
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
) -> OwnParty:
    """Make one party of a run in ``world``: its learner alone is kept.

    ``boxes`` gives what takes the messages to another party, ``transport`` what moves messages, ``free`` sends one
    outside time. ``outages`` are those that this process knows of.
    """
    protocol, training = scenario.protocols[name].protocol, resolved.training
    learners = learners_of(protocol, resolved, seed)
    clients = [learners.clients[client] for client in resolved.clients]
    conditions = conditions_of(protocol, resolved, learners.server, clients)
    stays_away = _stays_away(protocol, resolved)
    learner: PartyLearner = learners.server if party == SERVER else learners.clients[party]
    del learners, clients
    learner.draw_secrets()
    recorder = LiveRecorder(scenario.record.tables, party, world.really)
    if powers := resolved.powers:
        recorder.count_energy(powers, lambda: world.instant)
    world.on_left = recorder.left
    wires = LiveWires(resolved.codec, world.executor, seed)
    sequence = protocol.batch_plan().batches(resolved.data.rows, training, seed)
    mailboxes = {other: boxes(other) for other in (SERVER, *resolved.clients) if other != party}
    mailboxes[party] = OwnBox(world)
    shared = RunContext(
        world, transport(recorder), recorder, wires, resolved.clients, sequence, mailboxes,
        outages=outages, protocol=type(protocol).__name__,
    )  # fmt: skip
    own = BatchSequence(resolved.data.rows, training, seed, party) if training.batches == "own" else sequence
    state = LiveParty(party, shared, party_clock(resolved.timings[party], seed, party), LiveDraws(seed, party), own)
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
    if brings_code(protocol, resolved):
        world.executor.around = partial(drawing_apart, resolved.device)
        watch = Watch(learner, seed)
    node: Node = Node(state, learner, watch)
    return OwnParty(node, shared, resolved, reader, expected, recorder, wires, conditions, stays_away)


def _stays_away(protocol: Protocol, resolved: Setting) -> str:
    if brings_code(protocol, resolved):
        return "code of your own may remember what is in no file"
    return ""
