"""Take parties down and up: what that does to their work, and to those who wait for them.

``resumed``: an outage is a pause. ``lost``: a crash, with everything in flight gone, and a fresh start afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from vflsim.books import DOWN
from vflsim.errors import IncompleteRoundError, NoProgressError
from vflsim.streams import few, party_name
from vflsim.timing.arrivals import ActivationProcess, Arrival
from vflsim.timing.availability import Availability
from vflsim.timing.profile import Profile
from vflsim.world.kernel import Moment, World
from vflsim.world.mailbox import Mailbox, Wanted
from vflsim.world.record import Recorder
from vflsim.world.task import Signal, Task
from vflsim.world.transport import Transport


class Gate:
    """Pauses a party in outages that are ``resumed``: time spent down does not count."""

    def __init__(self, world: World, profile: Profile) -> None:
        self._world, self._profile = world, profile

    async def lasting(self, seconds: float, about: str) -> float:
        """Return how long ``seconds`` of being up last from now on; wait for ever if they never pass."""
        now = self._world.now()
        end = self._profile.finish(now, seconds)
        if end == math.inf:
            await self._world.signal(f"{about}, but it is down for good")
        return end - now

    async def up(self) -> None:
        """Wait until the party is up."""
        await self._world.pause(await self.lasting(0.0, "its activation"), "coming up again")

    def next(self, process: ActivationProcess, now: float) -> Arrival | None:
        """Return the next activation, None if no more will come. A party that is down counts as busy."""
        return next_activation(self._profile, process, now)


def next_activation(profile: Profile, process: ActivationProcess, now: float) -> Arrival | None:
    """Return the next activation of a party that is up where ``profile`` is above 0, None if no more will come."""
    activation = process.next(now)
    while activation is not None and not process.queue:
        up = profile.finish(activation.time, 0.0)
        if up == activation.time:
            break
        activation = process.next(math.nextafter(up, 0.0)) if up < math.inf else None
    return activation


# --- presence of clients ----------------------------------------------------------------------------------------------


CRASHES_WITHOUT_A_STEP = 10_000
"""Crashes of one party since the server's latest step after which a run is declared stuck."""


class Run(Protocol):
    """The parts of a run that outages act on."""

    world: World
    transport: Transport
    recorder: Recorder
    mailboxes: dict[int, Mailbox]


@dataclass(slots=True, eq=False)
class Presence:
    """One party's ups and downs; ``since`` is when the present outage began (s), ``outages`` how many have ended.

    ``start`` starts the party, and returns its task if it is one of this process.
    """

    party: int
    profile: Profile
    loses: bool
    recurs: bool
    start: Callable[[], Task | None]
    up: bool = True
    since: float = 0.0
    outages: int = 0
    crashes: int = 0  # since the server's step number ``steps``
    steps: int = 0
    tasks: list[Task] = field(default_factory=list)
    returning: list[Signal] = field(default_factory=list)


class Outages:
    """Takes parties down and up again by their availability, and knows who waits for whom.

    Invariants: while a party that has crashed is down it has no task (but an observer's), no message under way and no
    mail, and its processor is free; an activity that ends at the very instant of a crash has ended before it. An outage
    for good is a crash, also for a party that pauses in others. As soon as a receive can never be answered, the run
    ends with an error that names it.
    """

    run: Run

    def __init__(self, availabilities: Mapping[int, Availability], seed: int) -> None:
        self._availabilities = availabilities
        self._profiles = {party: each.profile(seed, party) for party, each in availabilities.items()}
        self._presences: dict[int, Presence] = {}
        self._waits: dict[Wanted, tuple[int, int | None, bool]] = {}
        """Receives that wait: of which party, whose crash ends it, and whether it forgoes clients that crash."""
        self.losing = frozenset(party for party, each in availabilities.items() if each.interrupted == "lost")
        """The parties that crash in every outage; the others pause."""
        self.gone: dict[int, float] = {}
        """The parties that are down for good, and since when (s)."""

    def gates(self) -> dict[int, Profile]:
        """The profiles of the parties that pause."""
        return {party: profile for party, profile in self._profiles.items() if party not in self.losing}

    def gate(self, world: World, party: int) -> Gate | None:
        """The gate of ``party`` if it pauses in outages."""
        pauses = party in self._profiles and party not in self.losing
        return Gate(world, self._profiles[party]) if pauses else None

    def begin(self, run: Run, starts: Mapping[int, Callable[[], Task | None]]) -> None:
        """Start every party by its function: one that has crashed when it comes up, and anew each time it does."""
        self.run = run
        for party, start in starts.items():
            if party not in self._profiles:
                start()
                continue
            presence = self._presences[party] = Presence(
                party, self._profiles[party], party in self.losing, self._availabilities[party].recurs, start
            )
            self._enter(presence, run.world.now())

    def close(self) -> None:
        """Record the outages that the end of the run cuts short."""
        for presence in self._presences.values():
            if not presence.up:
                self._record(presence, "unfinished")
        self._presences.clear()

    # --- questions of nodes -------------------------------------------------------------------------------------------

    def crashed(self, party: int) -> bool:
        """Whether ``party`` is down, and has lost its work."""
        presence = self._presences.get(party)
        return presence is not None and not presence.up and (presence.loses or party in self.gone)

    def down(self, party: int) -> bool:
        """Whether ``party`` is down, by a crash or a pause."""
        presence = self._presences.get(party)
        return presence is not None and not presence.up

    def returned(self, party: int) -> bool:
        """Whether ``party`` has crashed and come back (or was away at the start)."""
        presence = self._presences.get(party)
        return presence is not None and presence.loses and presence.outages > 0

    def adopt(self, party: int, task: Task) -> None:
        """Let a crash of ``party`` end ``task``, which it has started."""
        presence = self._presences.get(party)
        if presence is not None:
            presence.tasks = [*(old for old in presence.tasks if not old.done), task]

    async def back(self, party: int) -> None:
        """Wait until ``party`` is no longer down by a crash. Raises ``IncompleteRoundError`` if it always will be."""
        if not self.crashed(party):
            return
        if party in self.gone:
            raise self._hopeless(f"needs client {party}", [party])
        signal = self.run.world.signal(f"client {party} to come back")
        self._presences[party].returning.append(signal)
        await signal

    # --- receives that wait -----------------------------------------------------------------------------------------

    def listen(self, party: int, wanted: Wanted, sender: int | None, forgoing: bool) -> None:
        """Note that ``party`` begins to wait.

        A crash of ``sender`` ends the wait; with ``forgoing``, it no longer waits for clients that crash.
        """
        if sender is not None and self.crashed(sender):
            wanted.hang_up()
        for absent in filter(self.crashed, wanted.senders or ()) if forgoing else ():
            wanted.forgo(absent)
        self._waits[wanted] = party, sender, forgoing
        self._check(wanted, party)

    def stop_listening(self, wanted: Wanted) -> None:
        """Note that a receive has been answered or abandoned."""
        self._waits.pop(wanted, None)

    def _hang_up(self, party: int) -> None:
        """End the receives that only wait for ``party``, which has crashed; those that forgo it wait for the others."""
        for wanted, (_, sender, forgoing) in list(self._waits.items()):
            if sender == party:
                wanted.hang_up()
            elif forgoing:
                wanted.forgo(party)

    def _check_all(self) -> None:
        for wanted, (party, _, _) in list(self._waits.items()):
            self._check(wanted, party)

    def _check(self, wanted: Wanted, waiting: int) -> None:
        """End the run if too many of those whom a receive waits for are down for good."""
        if wanted.patient or wanted.ready or not self.gone:
            return
        parties: Collection[int] = self.run.mailboxes if wanted.senders is None else wanted.senders
        missing = [party for party in self.gone if party in parties and party not in wanted.heard]
        here = wanted.met
        can_come = len(parties) - len(missing) - (len(wanted.heard) if wanted.senders is not None else 1)
        enough = can_come > 0 if wanted.senders is None else here + can_come >= wanted.count
        if not enough:
            of = "" if wanted.senders is None else f" from as many of {len(wanted.senders)} clients"
            needs = f"needs {wanted.count} × {wanted.kind!r}{of}, {here} here, {can_come} can still come"
            self.run.world.fail(self._hopeless(needs, sorted(missing)), party_name(waiting))

    def _hopeless(self, needs: str, missing: Iterable[int]) -> IncompleteRoundError:
        named = [f"client {party} went down for good at {self.gone[party]:.6g} s" for party in missing]
        return IncompleteRoundError(
            f"{self._present_round()} cannot be completed: {needs}; {few(named)}",
            remedy="say in its availability when it is repaired, or choose a protocol that goes on without it",
        )

    def _present_round(self) -> str:
        """Return the round in progress in words."""
        return f"round {self.run.recorder.current_round}"

    # --- ups and downs ----------------------------------------------------------------------------------------------

    def _enter(self, presence: Presence, now: float) -> None:
        """Begin with a party."""
        up = presence.profile.value(now) > 0
        if up or not presence.loses:
            self._start(presence)
        if not up:
            self._go_down(presence, now)
        self._await_change(presence, now)

    def _start(self, presence: Presence) -> None:
        task = presence.start()
        if task is not None:
            presence.tasks.append(task)

    def _await_change(self, presence: Presence, since: float) -> None:
        """Have the next change after the instant ``since`` happen when it is due."""
        world = self.run.world
        at = presence.profile.next_change(since)
        if at < math.inf:  # endless pauses change nothing: the work that they delay keeps the run alive, if anything
            pauses = presence.recurs and not presence.loses
            world.after(at - world.now(), partial(self._due, presence, at), Moment.OUTAGE, observer=pauses)

    def _due(self, presence: Presence, at: float) -> None:
        """Deal with a change that was due at the instant ``at``: now."""
        self._change(presence, self.run.world.now())

    def _change(self, presence: Presence, now: float) -> None:
        if presence.party not in self._presences:  # the run has ended in this very turn
            return
        up = presence.profile.value(now) > 0
        if up and not presence.up:  # a profile may stay as it is, and a timer be early by rounding
            self._come_up(presence)
        elif presence.up and not up:
            self._go_down(presence, now)
        self._await_change(presence, now)

    def _go_down(self, presence: Presence, now: float) -> None:
        world = self.run.world
        presence.up = False
        for_good = presence.profile.finish(now, 0.0) == math.inf
        if for_good:
            self._note_gone(presence)
        if presence.loses or for_good:
            self._crash(presence)
        presence.since = world.now()
        if self.run.recorder.meter is not None:
            self.run.recorder.meter.begin(DOWN, world.now(), presence.party)

    def _note_gone(self, presence: Presence) -> None:
        self.gone[presence.party] = self.run.world.now()  # checked when the instant has ended: others may go down, too
        self.run.world.after(0.0, self._check_all, Moment.OUTAGE)

    def _crash(self, presence: Presence) -> None:
        run, party = self.run, presence.party
        run.transport.shut(party)
        while presence.tasks:  # last words may start another
            presence.tasks.pop().close()
        run.transport.lose(party)
        run.mailboxes[party].clear()
        self._hang_up(party)
        self._count_crash(presence)

    def _count_crash(self, presence: Presence) -> None:
        """End the run if a party crashes again and again without a step of the server."""
        steps = self.run.recorder.rounds
        presence.crashes = presence.crashes + 1 if presence.steps == steps else 1
        presence.steps = steps
        if presence.crashes > CRASHES_WITHOUT_A_STEP:
            self.run.world.fail(self._stuck(presence), "the world")

    def _come_up(self, presence: Presence) -> None:
        self._record(presence, "done")
        presence.up = True
        if self.run.recorder.meter is not None:
            self.run.recorder.meter.end(DOWN, self.run.world.now(), presence.party)
        if presence.loses:
            self.run.transport.open(presence.party)
            self._start(presence)
        for signal in presence.returning:
            signal.set()
        presence.returning.clear()

    def _record(self, presence: Presence, outcome: str) -> None:
        now, index = self.run.world.now(), presence.outages
        presence.outages += 1
        self.run.recorder.event(presence.since, now, presence.party, "outage", -1, -1, 0, index, math.nan, outcome)

    def _stuck(self, presence: Presence) -> NoProgressError:
        waits = sorted(self._waits.items(), key=lambda wait: wait[1][0])
        waiting = few([f"{party_name(party)} waits for {wanted}" for wanted, (party, _, _) in waits], "; ")
        waiting = waiting or "the server waits for it to come back"
        return NoProgressError(
            f"client {presence.party} has gone down {presence.crashes:,} times, and round {presence.steps} is "
            f"still not complete; {waiting}",
            allowed="outages between which there is time to get something done",
            remedy="make the client's up periods longer, let it resume its work, or limit the run with stop: {time: …}",
        )
