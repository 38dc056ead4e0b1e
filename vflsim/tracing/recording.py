"""Run a protocol's coroutines once, on recording nodes."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from vflsim.errors import VflsimError
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.learning.learners.watch import from_outside
from vflsim.learning.models.build import drawing_apart
from vflsim.setting import BatchPlan, Learners, Setting
from vflsim.streams import SERVER, party_name
from vflsim.tracing.node import TRACED, RecordingNode, RoundCounts, Untraceable
from vflsim.tracing.notes import Notes
from vflsim.vocabulary.imported import origin
from vflsim.vocabulary.on_demand import torch
from vflsim.world.node import Node
from vflsim.world.party import Draws, Party, PartyClock, RunContext
from vflsim.world.transport import Transport
from vflsim.world.virtual import VirtualWorld
from vflsim.world.wire import Wires

Makes: TypeAlias = Callable[[Any], Coroutine[Any, Any, Any]]
"""Makes a party's coroutine, given its node."""
ROUNDS, ROUNDS_FROM_OUTSIDE = 3, 30
"""The rounds of a trace: two that follow each other alike, and one more; of protocols from outside many more, which may
count rounds for themselves."""
_PARTY_ROUNDS = 4_000
"""Rounds of all parties together up to which there are so many."""


class Traceable(Protocol):
    """What a trace needs of a protocol."""

    async def server(self, node: Any) -> None:
        """Run the server."""

    async def client(self, node: Any) -> None:
        """Run one client."""

    def learners(self, setting: Setting, seed: int) -> Learners[Any, Any]:
        """Make the learners of a run."""

    def batch_plan(self) -> BatchPlan:
        """Return the mini-batches of its rounds."""


@dataclass(frozen=True, slots=True)
class RunNotes:
    """What all parties note in some rounds, in order; ``beside``: of what they have started and do not wait for.

    ``reasons`` say why times might change what they do. ``by_number``: clients ask for their number.
    """

    server: Notes
    clients: Mapping[int, Notes]
    beside: Sequence[tuple[int, Notes]]
    reasons: tuple[str, ...]
    by_number: bool


class _Alike(BatchSequence):
    """Batches that are all like one."""

    def __init__(self, sequence: BatchSequence, batch: Batch, origin: int) -> None:
        self.__dict__.update(vars(sequence))
        self.origin, self._one = origin, replace(batch, origin=origin)

    def batch(self, k: int) -> Batch:
        return replace(self._one, index=k)


def record(
    protocol: Traceable,
    setting: Setting,
    seed: int,
    batch: Batch,
    clients: Sequence[int] | None = None,
    late: int | None = None,
    rounds: int | None = None,
    coroutines: tuple[Makes, Makes] | None = None,
    placed: bool = True,
    shuffles: str = "",
) -> RunNotes:
    """Return what a protocol's parties do in its first ``rounds`` rounds (None: a few), on batches like ``batch``.

    ``clients``: those that take part; None: all. ``late``: a client that is, wherever the server need not wait
    for all. ``coroutines`` take the place of the protocol's, the server's first: the trace ends with it. ``placed``:
    the nodes of a reference are those on which some verbs are free. ``shuffles``: the kind of messages that waits
    give in the order of ``shuffled``. Raises ``Untraceable`` with the reason.

    Example::

        notes = record(Synchronous(), setting, 0, Batch(0, np.arange(4)))
        [type(note).__name__ for note in notes.clients[1][:3]]  # ['AwaitedActivation', 'Work', 'Sending']
    """
    learners = protocol.learners(setting, seed)
    taking_part = tuple(learners.clients) if clients is None else tuple(clients)
    world = VirtualWorld(TimingOnlyExecutor())
    recorder = RoundCounts()
    plan = protocol.batch_plan().batches(setting.data.rows, setting.training, seed)
    if rounds is None:
        many = min(ROUNDS_FROM_OUTSIDE, _PARTY_ROUNDS // (1 + len(taking_part)))
        rounds = max(ROUNDS, many) if from_outside(protocol) else ROUNDS
    shared = RunContext(
        world,
        Transport(world, setting.network, [timing.link for timing in setting.timings], seed, recorder),
        recorder,
        Wires(setting.codec, world.executor, seed),
        taking_part,
        _Alike(plan, batch, batch.origin),
        protocol=type(protocol).__name__,
    )
    nodes = dict[int, RecordingNode]()
    for party in (*taking_part, SERVER):
        sequence = _Alike(plan, batch, party) if setting.training.batches == "own" else shared.sequence
        timing = setting.timings[party]
        state = Party(party, shared, PartyClock(timing.compute, timing.upload_delay), Draws(seed, party), sequence)
        learner = learners.clients[party] if party else learners.server
        nodes[party] = RecordingNode(state, learner, rounds, late, shuffles)
    for party, node in nodes.items():
        serve, take_part = coroutines or (protocol.server, protocol.client)
        party_node = _placed(protocol, node) if placed else node
        world.spawn(take_part(party_node) if party else _to_its_end(serve, party_node, world), party_name(party), party)
    outside = from_outside(protocol)
    try:
        with drawing_apart(setting.device):  # code from outside may draw
            before = _drawn() if outside else ()
            world.run()
            draws = outside and _drawn() != before
    except Exception as error:
        cause = error.__cause__ or error
        if isinstance(cause, Untraceable):
            raise cause from None
        what = error.what if isinstance(error, VflsimError) else f"{type(error).__name__}: {error}"
        raise Untraceable(f"{what} ({origin(cause)})") from error
    finally:
        world.close()
    reasons = dict.fromkeys(reason for node in nodes.values() for reason in node.reasons)
    if draws:
        reasons[f"{type(protocol).__name__} draws random numbers"] = None
    return RunNotes(
        nodes[SERVER].notes,
        {client: nodes[client].notes for client in taking_part},
        [(party, notes) for party, node in nodes.items() for notes in node.beside],
        tuple(reasons),
        any(nodes[client].asked_for_its_number for client in taking_part),
    )


def _drawn() -> tuple[object, ...]:
    """Return how far the global generators have come."""
    _, key, *rest = np.random.get_state()
    return random.getstate(), np.asarray(key).tobytes(), rest, torch.get_rng_state().numpy().tobytes()


async def _to_its_end(serve: Makes, node: Node[Any], world: VirtualWorld) -> None:
    await serve(node)
    world.finish(TRACED)


def _placed(protocol: Any, node: RecordingNode) -> Node[Any]:
    """Return the node that a party gets: of a reference, one on which some verbs are free."""
    placed = getattr(protocol, "placed", None)
    party_node: Node[Any] = node if placed is None else placed(node)
    return party_node
