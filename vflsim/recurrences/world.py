"""The inputs of a run's times: draws, sizes and rates of every party.

Sizes and FLOPs come from the learners' real operations and from the codec.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import RunError
from vflsim.recurrences.chunk import Bools, Direction, RoundAges, undecided
from vflsim.recurrences.shared_links import SharedLinks
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timetable import Timetable
from vflsim.setting import Setting
from vflsim.streams import SERVER, party_name
from vflsim.timing.arrivals import ActivationProcess, Arrival
from vflsim.timing.availability import Always
from vflsim.timing.capacity import capacity_profile
from vflsim.timing.floats import Floats
from vflsim.timing.profile import Flat, Profile, gated, lowest
from vflsim.tracing.acts import MakeActs
from vflsim.tracing.notes import Row
from vflsim.tracing.recording import Traceable
from vflsim.tracing.trace import Orders, sending_orders, trace
from vflsim.world.messages import Gradient
from vflsim.world.outages import next_activation
from vflsim.world.transfers import latency_name
from vflsim.world.wire import specs_of


class Pauses:
    """When each client that has outages is up, by its place among all.

    An activity of such a client lasts as many seconds as pass until it has been up for long enough. Seconds are found
    as on the event path: the end of the activity less its beginning, to which they are added again.
    """

    def __init__(self, setting: Setting, seed: int, clients: list[int]) -> None:
        availabilities = {place: setting.timings[client].availability for place, client in enumerate(clients)}
        self.gates: dict[int, Profile] = {
            place: availability.profile(seed, clients[place])
            for place, availability in availabilities.items()
            if not isinstance(availability, Always)
        }
        server, ways = setting.timings[SERVER].link, dict[Direction, dict[int, Profile]](up={}, down={})
        for place, gate in self.gates.items():
            link = setting.timings[clients[place]].link
            ways["up"][place] = lowest(gated(capacity_profile(link.up), gate), capacity_profile(server.down))
            ways["down"][place] = lowest(capacity_profile(server.up), gated(capacity_profile(link.down), gate))
        self._ways = {
            direction: {place: way for place, way in each.items() if not isinstance(way, Flat)}
            for direction, each in ways.items()
        }
        self._clients = len(clients)

    def __bool__(self) -> bool:
        """Whether any client ever pauses."""
        return bool(self.gates)

    # --- all clients at once --------------------------------------------------------------------------------------

    def lasting(self, now: Floats, seconds: Floats, whose: Bools | None = None) -> Floats:
        """Return how long ``seconds`` (M,) of work last from ``now`` (M,) on, of those whom ``whose`` selects."""
        lasting = seconds.copy()
        for place in self.gates:
            if whose is None or whose[place]:
                lasting[place] = self.work(place, float(now[place]), float(seconds[place]))
        return lasting

    def active(self, processes: Sequence[ActivationProcess | None], now: Floats, round_: int) -> Floats:
        """Return when each client (M,) is active, and up, from ``now`` on: the waits are added as on the event path.

        Raises ``UndecidedError``, which names the round, if a client waits for ever.
        """
        times = now.copy()
        for place, process in enumerate(processes):
            if process is not None or place in self.gates:
                for wait in self.activated(place, process, float(times[place]), round_):
                    times[place] += wait
        return times

    def moving(self, direction: Direction, began: Floats, sizes: Ints, seconds: Floats) -> Floats:
        """Return how long messages of ``sizes`` (M,) move from ``began`` on: ``seconds`` where nobody pauses."""
        moving = seconds.copy()
        for place in self._ways[direction]:
            moving[place] = self.transfer(direction, place, float(began[place]), int(sizes[place]))
        return moving

    def profiles(self, direction: Direction) -> NDArray[np.object_]:
        """Return the rate of each client's messages over time (M,), None where it is constant."""
        profiles = np.full(self._clients, None)
        for place, way in self._ways[direction].items():
            profiles[place] = way
        return profiles

    # --- one client -------------------------------------------------------------------------------------------------

    def work(self, place: int, now: float, seconds: float) -> float:
        """Return how long ``seconds`` of work of the client at ``place`` last from ``now`` on."""
        return _until(self.gates[place], now, seconds) if place in self.gates else seconds

    def transfer(self, direction: Direction, place: int, began: float, size: int) -> float | None:
        """Return how long a message moves, None where nobody pauses."""
        way = self._ways[direction].get(place)
        return None if way is None else _until(way, began, 8.0 * size)

    def activated(
        self, place: int, process: ActivationProcess | None, now: float, round_: int = 0
    ) -> tuple[float, float]:
        """Return the waits of a client for its next activation from ``now`` on, and until it is up then.

        Raises ``UndecidedError``, which names the round, if none comes.
        """
        gate, wait = self.gates.get(place), 0.0
        if process is not None:
            wait = max(0.0, self.activation(place, process, now, round_).time - now)
        return wait, 0.0 if gate is None else _until(gate, now + wait, 0.0)

    def activation(self, place: int, process: ActivationProcess, now: float, round_: int) -> Arrival:
        """Return a client's next activation. Raises ``UndecidedError``, which names the round, if none comes."""
        gate = self.gates.get(place)
        activation = process.next(now) if gate is None else next_activation(gate, process, now)
        if activation is None:
            raise undecided("a client waits for ever for an activation", round_, now)
        return activation


def _until(profile: Profile, now: float, amount: float) -> float:
    """Return the seconds until an amount is through. Raises ``UndecidedError`` if it never is."""
    try:
        end = profile.finish(now, amount)
    except RunError as error:  # of very short outages, which the event path reports
        raise undecided(error.what, 0, now) from error
    if end == math.inf:
        raise undecided("a client goes down for good", 0, now)
    return end - now


class TimedWorld:
    """All parties of one run. ``clients`` are the participants; ``empty`` is the size of a message without tensors.

    ``before`` and ``round`` are what all parties do before the first round, and in each round: traced from the
    protocol's coroutines, or ``acts_by_hand`` (before the first round, and in each). ``rounds_by_hand``: a recurrence
    by hand knows what depends on times. ``rows`` is what the server records as the run begins, ``server`` its
    learner; ``pauses`` are the clients' outages. ``recorded``: spans have what events tell of them, if acts are
    traced. Raises ``Untraceable`` with the reason if there is no trace.

    Example::

        world = TimedWorld(Synchronous(), setting, seed=0)
        world.clients.tolist(), world.length(0)  # ([1, 2, 3, 4], 20)
    """

    def __init__(
        self,
        protocol: Traceable,
        setting: Setting,
        seed: int,
        acts_by_hand: tuple[MakeActs, MakeActs] | None = None,
        rounds_by_hand: bool = False,
        recorded: bool = False,
    ) -> None:
        learners = protocol.learners(setting, seed)
        self.server = learners.server
        clients = list(learners.clients)
        self.setting, self.seed, self.recorded = setting, seed, recorded and acts_by_hand is None
        self.clients = np.array(clients, np.int32)
        self.sequence = protocol.batch_plan().batches(setting.data.rows, setting.training, seed)
        self._batches = self.sequence.sizes()
        batches = self._batches
        if setting.training.batches == "own":  # messages name the rows of a batch that only one party knows
            batches = tuple(replace(batch, origin=1) for batch in batches)
        self.rows: Sequence[Row] = ()
        self._find_orders: Callable[[], Orders] = lambda: ([], [])
        if acts_by_hand is None:
            known = {len(batch): batch for batch in batches}
            by_size = {many: trace(protocol, setting, seed, batch, rounds_by_hand) for many, batch in known.items()}
            traces = [by_size[len(batch)] for batch in batches]
            self.rows, sorts = traces[0].rows, traces[0].sorts
            if recorded or (setting.network.queued and setting.network.delays(each.link for each in setting.timings)):
                self._find_orders = lambda: sending_orders(protocol, setting, seed, next(iter(known.values())))
                if not rounds_by_hand:
                    self.orders  # noqa: B018  # whether it is known decides the path
            places = {client: place for place, client in enumerate(clients)}
            alike = [places[sorts[client]] for client in clients]
            each = [[{places.get(client, 0): acts for client, acts in part.items()} for part in parts]
                    for parts in ([one.before for one in traces], [one.round for one in traces])]  # fmt: skip
        else:
            first: dict[
                Any, int
            ] = {}  # of clients with the same model and shape of features, which have the same costs
            alike = [first.setdefault(setting.alike(client), place) for place, client in enumerate(clients)]
            firsts = [(place, client) for place, client in enumerate(clients) if alike[place] == place]
            each = [[{place: make(learners.server, learners.clients, client, batch) for place, client in firsts}
                     for batch in batches] for make in acts_by_hand]  # fmt: skip
        table = Timetable(setting, seed, clients, alike)
        self.before, self.round = map(table.timed, each)
        self.pauses = Pauses(setting, seed, clients)
        self.empty = setting.codec.size_of(specs_of(Gradient(round=0)))

    @cached_property
    def orders(self) -> Orders:
        """In which order the server sends its messages, where events are recorded or messages queue.

        Raises ``Untraceable``.
        """
        return self._find_orders()

    @cached_property
    def shared_links(self) -> SharedLinks | None:
        """The server's links, where messages share them, or wait for them. Raises ``UndecidedError``."""
        links = [self.setting.timings[party].link for party in (SERVER, *self.clients.tolist())]
        if len(links) == 1 or not self.setting.network.delays(links):
            return None
        return SharedLinks(links[0], links[1:], self.setting.network.queued)

    @cached_property
    def metered(self) -> bool:
        """Whether a party says what it draws, so that spans are needed."""
        return bool(self.setting.powers)

    def latencies(self, upward: bool) -> list[str]:
        """Name the latencies of messages to the server, or from it, as events do (M,)."""
        clients = [party_name(client) for client in self.clients.tolist()]
        server = party_name(SERVER)
        return [latency_name(*((client, server) if upward else (server, client))) for client in clients]

    def kind_of(self, rounds: Ints) -> Ints:
        """Return the kind of each round's batch, by its size: mostly 0 for a full one, 1 for the last of an epoch."""
        return self.sequence.sizes_of(rounds)

    def length(self, number: int) -> int:
        """Return the rows of the batch of round ``number``."""
        return self.sequence.length(number)

    def lengths(self, kinds: Ints) -> Ints:
        """Return the rows of batches of these kinds."""
        lengths: Ints = np.array([len(batch) for batch in self._batches])[kinds]
        return lengths

    def fresh_ages(self, kinds: Ints) -> RoundAges:
        """Return the ages of rounds on batches of ``kinds`` that use fresh embeddings of all clients: 0."""
        rows, clients = np.zeros((2, len(kinds), 3), np.int64)
        rows[:, 1], clients[:, 1] = len(self.clients) * self.lengths(kinds), len(self.clients)
        return RoundAges(rows, clients)

    def activations(self) -> list[ActivationProcess | None]:
        """Return a new activation process of every client, None where it begins at once."""
        timings = self.setting.timings
        return [timings[client].activation.process(self.seed, client) for client in self.clients.tolist()]
