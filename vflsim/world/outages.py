"""Parties that go down and come up: what becomes of their work, and of those who wait for them.

``resumed``: an outage is a pause. ``lost``: a crash, with everything in flight gone, and a fresh start afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from vflsim.errors import NoProgressError
from vflsim.timing.arrivals import Activation, ActivationProcess
from vflsim.timing.availability import Interruptible
from vflsim.timing.profile import Profile
from vflsim.world.kernel import Moment, Signal, Task, World
from vflsim.world.mailbox import Wanted
from vflsim.world.waits import Waits

if TYPE_CHECKING:
    from vflsim.world.node import Node

CRASHES_WITHOUT_A_STEP = 10_000
"""Crashes of one party since the server's latest step after which a run is declared stuck."""


class Gate:
    """What an outage that is ``resumed`` means to its party: time spent down does not count."""

    def __init__(self, world: World, profile: Profile) -> None:
        self._world, self._profile = world, profile

    async def lasting(self, seconds: float, about: str) -> float:
        """How long ``seconds`` of being up last from now on; waits for ever if they never pass."""
        now = self._world.now()
        end = self._profile.finish(now, seconds)
        if end == math.inf:
            await self._world.signal(f"{about}, but it is down for good")
        return end - now

    async def up(self) -> None:
        """Wait until the party is up."""
        await self._world.pause(await self.lasting(0.0, "its activation"), "coming up again")

    def next(self, process: ActivationProcess, now: float) -> Activation | None:
        """The next activation: one that comes while the party is down finds it busy. None: no more will come."""
        activation = process.next(now)
        while activation is not None and not process.queue:
            up = self._profile.finish(activation.time, 0.0)
            if up == activation.time:
                break
            activation = process.next(math.nextafter(up, 0.0)) if up < math.inf else None
        return activation


@dataclass(slots=True, eq=False)
class _Presence:
    """One party's ups and downs; ``since`` is when the present outage began."""

    node: Node
    profile: Profile
    loses: bool
    recurs: bool
    start: Callable[[Node], Task]
    up: bool = True
    since: float = 0.0
    outages: int = 0
    crashes: int = 0  # since the server's step number ``steps``
    steps: int = 0
    tasks: list[Task] = field(default_factory=list)
    returning: list[Signal] = field(default_factory=list)


class Outages:
    """Takes parties down and up again, as their availability says.

    Invariants: while a party that has crashed is down it has no task (but an observer's), no message under way and no
    mail, and its processor is free; what ends at the very instant at which it goes down has ended before. An outage
    that is for good is a crash, whatever becomes of work that is interrupted: nothing resumes it.
    """

    def __init__(self, availabilities: Mapping[int, Interruptible], seed: int) -> None:
        self._availabilities = availabilities
        self._profiles = {party: said.profile(seed, party) for party, said in availabilities.items()}
        self._presences: dict[int, _Presence] = {}
        self.losing = frozenset(party for party, said in availabilities.items() if said.interrupted == "lost")
        """Who crashes in every outage; the others pause."""
        self.waits = Waits()

    def gates(self) -> dict[int, Profile]:
        """The profiles of the parties that pause."""
        return {party: profile for party, profile in self._profiles.items() if party not in self.losing}

    def gate(self, world: World, party: int) -> Gate | None:
        """What pauses ``party``, if anything does."""
        pauses = party in self._profiles and party not in self.losing
        return Gate(world, self._profiles[party]) if pauses else None

    def begin(self, nodes: Iterable[Node], start: Callable[[Node], Task]) -> None:
        """Let ``start`` start every party: a crashed one when it comes up, and anew each time it does."""
        for node in nodes:
            if node.party not in self._profiles:
                start(node)
                continue
            presence = _Presence(
                node,
                self._profiles[node.party],
                node.party in self.losing,
                self._availabilities[node.party].recurs,
                start,
            )
            self._presences[node.party] = presence
            up = presence.profile.value(node.now) > 0
            if up or not presence.loses:
                presence.tasks.append(start(node))
            if not up:
                self._go_down(presence)
            self._await_change(presence)

    def close(self) -> None:
        """The run is over: account for the outages that are not."""
        for presence in self._presences.values():
            if not presence.up:
                self._record(presence, "unfinished")
        self._presences.clear()

    # --- what nodes ask ---------------------------------------------------------------------------------------------

    def crashed(self, party: int) -> bool:
        """Whether ``party`` is down, and has lost what it was doing."""
        presence = self._presences.get(party)
        return presence is not None and not presence.up and (presence.loses or party in self.waits.gone)

    def down(self, party: int) -> bool:
        """Whether ``party`` is down, by a crash or a pause."""
        presence = self._presences.get(party)
        return presence is not None and not presence.up

    def returned(self, party: int) -> bool:
        """Whether ``party`` has crashed and come back (or was away at the start)."""
        presence = self._presences.get(party)
        return presence is not None and presence.loses and presence.outages > 0

    def adopt(self, party: int, task: Task) -> None:
        """``task`` was started by ``party``, and is lost with it."""
        presence = self._presences.get(party)
        if presence is not None:
            presence.tasks = [*(old for old in presence.tasks if not old.done), task]

    async def back(self, node: Node, party: int) -> None:
        """Wait until ``party`` is no longer down by a crash. Raises ``IncompleteRoundError`` if it always will be."""
        if not self.crashed(party):
            return
        if party in self.waits.gone:
            raise self.waits.hopeless(node, f"needs client {party}", [party])
        signal = node.world.signal(f"client {party} to come back")
        self._presences[party].returning.append(signal)
        await signal

    def listen(self, node: Node, wanted: Wanted, patient: bool, sender: int | None, forgoing: bool) -> None:
        """``node`` begins to wait: ``patient`` with a timeout; if ``sender`` is given, only while that one is up.

        ``forgoing``: only for those senders who are up.
        """
        if sender is not None and self.crashed(sender):
            node.mailbox.time_out(wanted)
        for absent in filter(self.crashed, wanted.senders or ()) if forgoing else ():
            node.mailbox.forgo(wanted, absent)
        self.waits.add(node, wanted, patient, sender, forgoing)

    # --- ups and downs ----------------------------------------------------------------------------------------------

    def _await_change(self, presence: _Presence) -> None:
        world = presence.node.world
        now = world.now()
        at = presence.profile.next_change(now)
        if at < math.inf:  # pauses that go on for ever change nothing: what they delay keeps the run alive, if anything
            pauses = presence.recurs and not presence.loses
            world.after(at - now, partial(self._change, presence), Moment.OUTAGE, observer=pauses)

    def _change(self, presence: _Presence) -> None:
        up = presence.profile.value(presence.node.now) > 0
        if up != presence.up:  # a profile may stay as it is, and a timer be early by rounding
            (self._come_up if up else self._go_down)(presence)
        self._await_change(presence)

    def _go_down(self, presence: _Presence) -> None:
        node = presence.node
        presence.up = False
        for_good = presence.profile.finish(node.now, 0.0) == math.inf
        if for_good:  # seen to when the instant has ended, in which others may go down, too
            self.waits.gone[node.party] = node.now
            node.world.after(0.0, self.waits.check, Moment.OUTAGE)
        if presence.loses or for_good:
            self._crash(presence)
        presence.since = node.now  # in real time the last words have taken some

    def _crash(self, presence: _Presence) -> None:
        node, party = presence.node, presence.node.party
        transport = node.shared.transport
        transport.shut(party)
        while presence.tasks:  # last words may start another
            presence.tasks.pop().close()
        transport.lose(party)
        node.mailbox.clear()
        self.waits.hang_up(party)
        steps = node.shared.recorder.rounds
        presence.crashes = presence.crashes + 1 if presence.steps == steps else 1
        presence.steps = steps
        if presence.crashes > CRASHES_WITHOUT_A_STEP:
            node.world.fail(self._stuck(presence), "the world")

    def _come_up(self, presence: _Presence) -> None:
        self._record(presence, "done")
        presence.up = True
        if presence.loses:
            presence.node.shared.transport.open(presence.node.party)
            presence.tasks.append(presence.start(presence.node))
        for signal in presence.returning:
            signal.set()
        presence.returning.clear()

    def _record(self, presence: _Presence, outcome: str) -> None:
        node, index = presence.node, presence.outages
        presence.outages += 1
        node.shared.recorder.event(presence.since, node.now, node.party, "outage", -1, -1, 0, index, math.nan, outcome)

    def _stuck(self, presence: _Presence) -> NoProgressError:
        return NoProgressError(
            f"client {presence.node.party} has gone down {presence.crashes:,} times, and round {presence.steps} is "
            f"still not complete; {self.waits}",
            allowed="outages between which there is time to get something done",
            remedy="make the client's up periods longer, let it resume its work, or limit the run with stop: {time: …}",
        )
