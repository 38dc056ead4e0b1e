"""Make the parties of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from vflsim.learning.batches import BatchSequence
from vflsim.learning.learners.inputs import KeptValue
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.releases import Releases
from vflsim.learning.learners.watch import Watch, from_outside
from vflsim.learning.models.build import drawing_apart
from vflsim.learning.models.client import ModuleClient
from vflsim.learning.models.server import ModuleServer
from vflsim.protocols import Protocol
from vflsim.protocols.hook_checks import learners_of
from vflsim.scenario.sections import ViewRecording
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.timing.availability import Always, Availability
from vflsim.timing.party import PartyTiming
from vflsim.world.encrypting_node import encrypting
from vflsim.world.kernel import World
from vflsim.world.mailbox import Mailbox
from vflsim.world.node import Node
from vflsim.world.outages import Outages
from vflsim.world.party import Draws, Party, PartyClock, RunContext
from vflsim.world.record import Meter, Recorder
from vflsim.world.transport import Transport
from vflsim.world.wire import Views, Wires, chosen_rows


@dataclass(frozen=True, slots=True)
class Parties:
    """The nodes of one run: the server, and the participants in client order; ``alone`` lists unbatched clients.

    ``remote_releases``: what clients of other processes say that they have released.
    """

    server: Node
    clients: tuple[Node, ...]
    shared: RunContext
    protocol: Protocol
    alone: tuple[str, ...] = ()
    lazy_values: tuple[type[KeptValue], ...] = ()
    remote_releases: tuple[Releases, ...] = ()

    @property
    def releases(self) -> list[Releases]:
        """What the server and each client have released, in party order; empty without a mechanism."""
        here = (party.learner.releases for party in (self.server, *self.clients))
        return [*(releases for releases in here if releases is not None), *self.remote_releases]


def parties(
    protocol: Protocol,
    setting: Setting,
    seed: int,
    world: World,
    recorder: Recorder,
    batched: bool = False,
    views: ViewRecording | None = None,
    boxes: Mapping[int, Mailbox] | None = None,
) -> Parties:
    """Make the nodes of a run in ``world``.

    ``batched``: compute alike clients together; ``views``: what to keep; ``boxes``: mailboxes in place
    of the usual ones.
    """
    training, rows, timings = setting.training, setting.data.rows, setting.timings
    learners = learners_of(protocol, setting, seed)
    alone = learners.stack(setting, protocol.traits.table) if batched else []
    recorder.meter = Meter(setting.powers) if setting.powers else None
    shared = context_of(protocol, setting, seed, world, recorder, protocol.batch_plan().batches(rows, training, seed))
    shared.mailboxes |= boxes or {}
    sequences = {
        party: BatchSequence(rows, training, seed, party) if training.batches == "own" else shared.sequence
        for party in (SERVER, *learners.clients)
    }
    if views is not None:
        chosen = chosen_rows(rows, views.rows, seed)
        shared.views = Views(chosen, world.executor, world.now, sequences, views.keep == "all")

    watched = world.executor.values and brings_code(protocol, setting)
    if watched:
        world.executor.around = partial(drawing_apart, setting.device)

    def node(party: int, learner: PartyLearner) -> Node:
        state = Party(party, shared, party_clock(timings[party], seed, party), Draws(seed, party), sequences[party])
        watch = Watch(learner, seed) if watched else None
        return protocol.placed(encrypting(Node(state, learner, watch)))

    nodes = tuple(node(client, learner) for client, learner in learners.clients.items())
    return Parties(node(SERVER, learners.server), nodes, shared, protocol, tuple(alone), learners.lazy_values)


def context_of(
    protocol: Protocol, setting: Setting, seed: int, world: World, recorder: Recorder, sequence: BatchSequence
) -> RunContext:
    """Return what all parties of a run in ``world`` share."""
    interruptible = {} if protocol.traits.reference else interruptible_of(setting)
    outages = Outages(interruptible, seed) if interruptible else None  # None: all are always available
    gates = {} if outages is None else outages.gates()
    links, concurrency = [timing.link for timing in setting.timings], setting.timings[SERVER].concurrency
    return RunContext(
        world=world,
        transport=Transport(world, setting.network, links, seed, recorder, gates, setting.transport, concurrency),
        recorder=recorder,
        wires=Wires(setting.codec, world.executor, seed),
        clients=setting.clients,
        sequence=sequence,
        outages=outages,
        protocol=type(protocol).__name__,
    )


def brings_code(protocol: Protocol, setting: Setting) -> bool:
    """Return whether learners may run code from outside: of protocol, model, aggregate, optimiser, loss, mechanism."""
    models = (*setting.models, setting.server_model, setting.active_model, *setting.predictors)
    foreign = any(isinstance(model, ModuleClient | ModuleServer) or from_outside(model) for model in models if model)
    rules = {setting.optimizer_of(party) for party in (SERVER, *setting.clients)}
    return foreign or any(
        map(
            from_outside,
            (
                protocol,
                setting.aggregate,
                setting.training.loss,
                *rules,
                *([setting.mechanism] if setting.mechanism else []),
            ),
        )
    )


def interruptible_of(setting: Setting) -> dict[int, Availability]:
    """Return when the participants are there that are not always available."""
    availabilities = {client: setting.timings[client].availability for client in setting.clients}
    return {client: each for client, each in availabilities.items() if not isinstance(each, Always)}


def party_clock(timing: PartyTiming, seed: int, party: int) -> PartyClock:
    """Return the laws of a party's times in a run."""
    return PartyClock(timing.compute, timing.upload_delay, timing.activation.process(seed, party))
