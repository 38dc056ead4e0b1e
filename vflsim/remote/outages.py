"""Outages of a live run: the scenario's own draws, in every process alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from typing_extensions import override

from vflsim.protocol import Availability, party_name
from vflsim.remote.control import CameUp, ControlError
from vflsim.remote.orders import APART_S
from vflsim.worlds import Outages, Presence, Run, Task


class LiveOutages(Outages):
    """Takes parties down and up in one process of a live run.

    Invariants: outages happen one after the other at the instants that are drawn, and none is passed over, however late
    the machine is: so all processes see the same ones. A client whose process is away is down, whatever the scenario
    draws.
    """

    def __init__(self, availabilities: Mapping[int, Availability], seed: int) -> None:
        super().__init__(availabilities, seed)
        self._away: set[int] = set()

    def away(self, client: int) -> None:
        """Note that a client's process is gone: the client has crashed, unless it is down already."""
        self._away.add(client)
        presence = self._presences.get(client)
        if presence is not None and presence.up:
            self._go_down(presence, self.run.world.now())

    def here(self, client: int) -> None:
        """Note that a client's process is back: the client comes up, unless the scenario has it down."""
        self._away.discard(client)
        presence = self._presences.get(client)
        if presence is None or presence.up:  # the run has ended, or it is not known here that the client was away
            return
        now = self.run.world.now()
        if presence.profile.value(now) > 0:
            self._back_now(presence, now)

    def _back_now(self, presence: Presence, _now: float) -> None:
        self._come_up(presence)

    @override
    def _due(self, presence: Presence, at: float) -> None:
        self._change(presence, at)

    @override
    def _enter(self, presence: Presence, now: float) -> None:
        super()._enter(presence, now)
        if presence.party in self._away and presence.up:  # gone between the order to start and the start
            self._go_down(presence, now)

    @override
    def _change(self, presence: Presence, now: float) -> None:
        super()._change(presence, now)
        if presence.party in self._away and presence.profile.finish(now, 0.0) == math.inf:
            self._note_gone(presence)

    @override
    def _come_up(self, presence: Presence) -> None:
        if presence.party not in self._away:
            super()._come_up(presence)


class ServerOutages(LiveOutages):
    """The server's: it decides when a client that has crashed is back, and tells it so.

    ``tell`` sends a client that word, ``lost`` is called after a crash has lost a client's messages. Invariant: the
    word comes to the client after all that was sent to it before its outage, and before all that is sent to it after.
    """

    def __init__(
        self,
        availabilities: Mapping[int, Availability],
        seed: int,
        tell: Callable[[int, CameUp], None],
        lost: Callable[[], None],
    ) -> None:
        super().__init__(availabilities, seed)
        self._tell, self._lost = tell, lost
        self._now: dict[int, float] = {}
        self.crashes: Counter[int] = Counter()
        """How often each client has crashed."""

    @override
    def _back_now(self, presence: Presence, _now: float) -> None:
        self._now[presence.party] = _now
        super()._back_now(presence, _now)

    @override
    def begin(self, run: Run, starts: Mapping[int, Callable[[], Task | None]]) -> None:
        super().begin(run, {client: partial(self._call_back, client) for client in self._profiles} | dict(starts))

    @override
    def _change(self, presence: Presence, now: float) -> None:
        self._now[presence.party] = now
        super()._change(presence, now)

    @override
    def _crash(self, presence: Presence) -> None:
        super()._crash(presence)
        self.crashes[presence.party] += 1
        self._lost()

    def _call_back(self, client: int) -> None:
        number = self._presences[client].outages
        if number:  # else the run begins
            round_ = self.run.recorder.current_round
            self._tell(client, CameUp(number=number, round=round_, at=self._now[client]))


class ClientOutages(LiveOutages):
    """A client's: of its own outages, and of others' as far as its receives wait for them.

    ``crashed_now`` is called after each crash of its own; ``again``: this process takes the place of a former one that
    was in the run before. Invariant: after a crash the client begins anew when its server says so, in the round that
    the server names; it has crashed before, at the latest then. The server records the outages, and judges whether the
    run gets anywhere.
    """

    def __init__(
        self,
        availabilities: Mapping[int, Availability],
        seed: int,
        party: int,
        crashed_now: Callable[[], None],
        again: bool = False,
    ) -> None:
        super().__init__(availabilities, seed)
        self._party, self._crashed_now, self._again = party, crashed_now, again
        self._begun, self._early = False, list[CameUp]()
        self._dealt_with = -math.inf  # own changes until this instant
        self._next_change = math.inf
        self._ups = 0  # the number of the latest outage that is over

    def next_crash(self) -> float:
        """Return before which instant the client does not crash: infinite where it never does again."""
        presence = self._presences.get(self._party)
        return self._next_change if presence is not None and presence.loses else math.inf

    @override
    def begin(self, run: Run, starts: Mapping[int, Callable[[], Task | None]]) -> None:
        super().begin(run, starts)
        self._begun = True
        for word in self._early:
            self.called_back(word)

    @override
    def _enter(self, presence: Presence, now: float) -> None:
        if self._again and presence.party == self._party:
            presence.up = False
            self._await_change(presence, now)
        else:
            super()._enter(presence, now)

    def called_back(self, word: CameUp) -> None:
        """Take the server's word that an outage is over: begin anew in the round that it names."""
        if not self._begun:
            self._early.append(word)
            return
        presence = self._presences.get(self._party)
        if presence is None:  # the run has ended
            return
        self._check_word(presence, word)
        self.run.recorder.current_round = word.round
        self._dealt_with = word.at
        if presence.up:  # the crash is still to happen: this machine is late
            self._go_down(presence, word.at)
        super()._come_up(presence)

    def _check_word(self, presence: Presence, word: CameUp) -> None:
        """Refuse the word on an outage that is none of the scenario's, or is over: it would redo a round once more.

        A process that has taken the place of a former one comes up when the server lets it, once.
        """
        profile, again = presence.profile, self._again and self._ups == 0
        ends = profile.next_change(math.nextafter(word.at, -math.inf)) == word.at and profile.value(word.at) > 0
        if word.number <= self._ups or word.at > self.run.world.now() + APART_S or not (ends or again):
            what = f"the server ends outage {word.number} of {party_name(self._party)} at {word.at:g} s"
            raise ControlError(what, allowed="the ends of its outages in this scenario, each once")
        self._ups = word.number

    @override
    def _await_change(self, presence: Presence, since: float) -> None:
        if presence.party == self._party:
            self._next_change = presence.profile.next_change(since)
        super()._await_change(presence, since)

    @override
    def _change(self, presence: Presence, now: float) -> None:
        if presence.party == self._party and now <= self._dealt_with:
            self._await_change(presence, now)
        else:
            super()._change(presence, now)

    @override
    def _come_up(self, presence: Presence) -> None:
        if presence.party != self._party or not presence.loses:
            super()._come_up(presence)

    @override
    def _crash(self, presence: Presence) -> None:
        super()._crash(presence)
        if presence.party == self._party:
            self._crashed_now()

    @override
    def _count_crash(self, presence: Presence) -> None:
        """Do nothing: a client does not know the server's steps."""

    @override
    def _record(self, presence: Presence, outcome: str) -> None:
        presence.outages += 1

    @override
    def _present_round(self) -> str:
        return "the round in progress"
