"""Replay of a live run: the same protocol in virtual time, every party meeting its inputs in the live order."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
from typing_extensions import override

from vflsim.codecs import Codec
from vflsim.errors import DeadlockError, ResultsError, RunError, ScenarioError
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.execution.operations import ImmediateExecutor
from vflsim.learning.models.build import drawing_from
from vflsim.protocols.capabilities import overrides
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import party_timings, setting
from vflsim.simulation.build import parties
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import EventRun, Outcome, RunPlan
from vflsim.streams import SERVER, SHARED, party_name, torch_seed
from vflsim.timing.availability import Always
from vflsim.vocabulary.execution_options import Execution
from vflsim.vocabulary.on_demand import load
from vflsim.world.kernel import Moment
from vflsim.world.mailbox import Mailbox
from vflsim.world.messages import InputOrder, Item, Message, counts, item_of
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualTimer, VirtualWorld

NO_TIMES = "a replay: its times mean nothing"
ORDER = "order"
"""The table of a live run that a replay reads."""
_COLUMNS = {"party": pa.int32(), "what": pa.string(), "sender": pa.int32(), "round": pa.int64()}
_COMPUTATION, _SLEEP = "its computation to end", "its sleep to end"


def order_table(orders: Mapping[int, InputOrder]) -> pa.Table:
    """Return all parties' orders as a table: a row an input, each party's rows in its order."""
    rows = [(party, *item) for party, order in sorted(orders.items()) for item in order.items]
    arrays = [pa.array([row[k] for row in rows], kind) for k, kind in enumerate(_COLUMNS.values())]
    return pa.table(dict(zip(_COLUMNS, arrays, strict=True)))


def orders_of(table: pa.Table) -> dict[int, InputOrder]:
    """Invert ``order_table``. Raises ``ResultsError`` for a table with other columns."""
    if table.schema.names != list(_COLUMNS):
        raise ResultsError(f"a table with the columns {table.schema.names}", ORDER, f"the columns {list(_COLUMNS)}")
    orders: dict[int, InputOrder] = defaultdict(InputOrder)
    for party, *item in zip(*(table.column(name).to_pylist() for name in _COLUMNS), strict=True):
        orders[party].items.append(Item(*item))
    return dict(orders)


class OrderedWorld(VirtualWorld):
    """Runs coroutines so that every party meets its inputs in a given order, one each virtual second.

    Times mean nothing. Invariant: an input is met when it exists (a message has been sent, an activity has begun) and
    all inputs before it in its party's order have been met. The run ends once a stop rule has ended it and all orders
    are at their end. Raises ``DeadlockError``, which names the party and the input, if one never comes to exist.
    """

    def __init__(self, orders: Mapping[int, InputOrder]) -> None:
        super().__init__(ImmediateExecutor())
        self._orders = orders
        self._met = dict.fromkeys(orders, 0)
        self._here: dict[int, defaultdict[Item | str, deque[Callable[[], object]]]] = {
            party: defaultdict(deque) for party in orders
        }
        self._next_is_due = dict.fromkeys(orders, False)
        self._ends_with: str | None = None

    def exists(self, party: int, what: Item | str, meet: Callable[[], object]) -> None:
        """Have ``party`` meet an input by ``meet`` when its turn has come."""
        self._here[party][what].append(meet)
        self._look(party)

    @override
    def pause(self, seconds: float, about: str) -> Awaitable[None]:
        task = self.running or self.current()
        if about == _SLEEP:
            raise RunError(f"{party_name(task.party)} sleeps", allowed="protocols without `sleep`, in a replay")
        return self._turn(task.party, about)

    @override
    def read_clock(self) -> float:
        raise RunError("a protocol that reads the clock", allowed="steps that no measured time decides, in a replay")

    async def _turn(self, party: int, about: str) -> None:
        signal = self.signal(about)
        here = self._here[party][about]
        self.exists(party, about, signal.set)
        try:
            await signal
        finally:
            if signal.set in here:  # abandoned
                here.remove(signal.set)

    @override
    def after(
        self, delay: float, callback: Callable[[], object], moment: Moment = Moment.EVENT, observer: bool = False
    ) -> VirtualTimer:
        if moment is Moment.TIMEOUT:
            raise RunError("a receive with a timeout", allowed="protocols without deadlines, in a replay")
        return super().after(delay, callback, moment, observer)

    @override
    def finish(self, reason: str) -> None:
        self._ends_with = self._ends_with or reason
        self._end_if_all_is_met()

    def _end_if_all_is_met(self) -> None:
        met = all(self._met[party] >= len(order.items) for party, order in self._orders.items())
        if self._ends_with is not None and met:
            super().finish(self._ends_with)

    def _look(self, party: int) -> None:
        """Have the next input of a party met in a second, if it exists."""
        items, place = self._orders[party].items, self._met[party]
        if self._next_is_due[party] or place == len(items):
            return
        here = self._here[party].get(_about(items[place]))
        if here:
            self._next_is_due[party] = True
            self.after(1.0, partial(self._meet, party, here))

    def _meet(self, party: int, here: deque[Callable[[], object]]) -> None:
        self._next_is_due[party] = False
        if here:  # else it was abandoned in this second
            self._met[party] += 1
            here.popleft()()
        self._look(party)
        self.after(0.0, self._end_if_all_is_met, Moment.OBSERVE)

    @override
    def _deadlock(self) -> RunError:
        waits = [
            f"{party_name(party)} waits for input {place}, {self._orders[party].items[place]}"
            for party, place in self._met.items()
            if place < len(self._orders[party].items)
        ]
        if not waits:
            return super()._deadlock()
        return DeadlockError(
            f"the replay departs from the live order: {'; '.join(waits[:3])}",
            remedy="replay with the scenario, the seed and the version of vflsim of the live run",
        )


def _about(item: Item) -> Item | str:
    """Return by what an input is known while it waits: a message by itself, an own activity by its pause."""
    if item.sender >= 0:
        return item
    if item.what.startswith("compute."):  # a party does one at a time
        return _COMPUTATION
    return "its activation" if item.what == "activation" else f"its {item.what} delay"


class OrderedBox(Mailbox):
    """A mailbox into which messages come in the order of its party."""

    def __init__(self, world: OrderedWorld, party: int) -> None:
        super().__init__(world)
        self._ordered, self._party = world, party

    @override
    def deliver(self, message: Message) -> None:
        if counts(message):
            self._ordered.exists(self._party, item_of(message), partial(super().deliver, message))
        else:
            super().deliver(message)


def refuse_unreplayable(scenario: Scenario) -> None:
    """Raise ``ScenarioError`` for the first protocol that cannot be replayed, with the reason."""
    timings = party_timings(scenario)
    for name, entry in scenario.protocols.items():
        clients = entry.protocol.participants(scenario.clients, scenario.symbols)
        away = [client for client in clients if not isinstance(timings[client].availability, Always)]
        if away:
            why, allowed = f"outages of {party_name(away[0])} are no part of the order", "clients that are always there"
            raise ScenarioError(f"{name} cannot be replayed: {why}", f"protocols.{name}", allowed)
        noisy = {
            "mechanism": entry.mechanism is not None,
            "codec": _hides(scenario.codec_of(name)),
            "noise": entry.protocol.traits.noise,
        }
        for key in (key for key, has_noise in noisy.items() if has_noise):
            source = "their own" if key == "noise" else f"a {key}"
            why, allowed = "the noise of a live run is in no file", f"protocols without noise of {source}"
            raise ScenarioError(f"{name} cannot be replayed: {why}", f"protocols.{name}.{key}", allowed)
        if overrides(entry.protocol, "evaluate"):
            why = "its evaluations have messages of their own"
        elif scenario.evaluate_of(name).costs_time:
            why = "its evaluations cost time"
        else:
            continue
        raise ScenarioError(f"{name} cannot be replayed: {why}", f"protocols.{name}", "the usual evaluation")


def _hides(codec: Codec) -> bool:
    return any(codec.towards(receiver).hides for receiver in (SERVER, 1))


def replayed(
    scenario: Scenario,
    name: str,
    seed: int,
    data: LoadedData,
    orders: Mapping[int, InputOrder],
    report: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Run a protocol in virtual time with every party's inputs in the order of a live run.

    Its weights are those of the live run, bit for bit on one machine with one thread. Raises ``ResultsError`` if a
    party of the run has no order.
    """
    load()
    protocol, resolved = scenario.protocols[name].protocol, setting(scenario, name, data)
    lacking = {SERVER, *resolved.clients} - orders.keys()
    if lacking:
        raise ResultsError(f"no order of {', '.join(map(party_name, sorted(lacking)))}", ORDER, "one of every party")
    world, execution = OrderedWorld(orders), Execution(eager=True)
    boxes = {party: OrderedBox(world, party) for party in (SERVER, *resolved.clients)}
    with drawing_from(torch_seed(seed, SHARED, "learners")):
        nodes = parties(protocol, resolved, seed, world, Recorder(scenario.record.tables), boxes=boxes)
    outcome = EventRun(RunPlan(scenario, name, seed, resolved, execution=execution), nodes, report=report).play()
    return replace(outcome, note="; ".join(filter(None, [outcome.note, NO_TIMES])))
