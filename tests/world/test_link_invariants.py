"""Whatever is sent and abandoned, links keep their word (random schedules)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain, pairwise, product

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from thorough import examples

from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.timing.capacity import Link
from vflsim.timing.profile import StepProfile
from vflsim.world.carriers import Queues
from vflsim.world.messages import Message
from vflsim.world.networks import Dedicated, Fair, Fifo
from vflsim.world.record import Recorder
from vflsim.world.transport import Transfer, Transport
from vflsim.world.virtual import VirtualWorld

PARTIES = 4
rates = st.sampled_from([8.0, 16.0, 24.0, float("inf")])
exact = st.sampled_from([8.0, 16.0, 32.0, float("inf")])
exact_links = st.builds(Link, up=exact, down=exact, latency=st.sampled_from([0.0, 0.0, 1.0, 2.5]))
"""Links on which all times of the schedules are exact, so that what happens at one instant does so to the last bit."""
links = st.builds(Link, up=rates, down=rates, latency=st.sampled_from([0.0, 0.0, 1.0, 2.5]))
pairs = st.tuples(st.integers(0, PARTIES - 1), st.integers(0, PARTIES - 1)).filter(lambda pair: pair[0] != pair[1])
schedules = st.lists(
    st.tuples(
        st.integers(0, 12).map(lambda n: n / 2),  # sent at
        pairs,
        st.integers(0, 6),  # bytes
        st.one_of(st.none(), st.none(), st.integers(0, 16).map(lambda n: n / 2)),  # abandoned so long after
    ),
    max_size=14,
)


def simulate(network, ends, schedule, until: float, gates=None, outages=(), concurrency=None):
    """What a transport does with a schedule: its records, arrivals and transfers."""
    world, recorder = VirtualWorld(TimingOnlyExecutor()), Recorder()
    transport = Transport(world, network, ends, 0, recorder, gates, concurrency=concurrency)
    arrived: list[tuple[float, Message]] = []
    sent: list[tuple[Transfer, float | None, float]] = []

    def send(time: float, pair: tuple[int, int], size: int, patience: float | None) -> None:
        message = Message()
        message.sender, message.receiver = pair
        message.sent = time
        transfer = transport.send(message, size, lambda m: arrived.append((world.now(), m)))
        sent.append((transfer, patience, time))
        if patience is not None:
            world.after(patience, lambda: transport.abandon(transfer))

    for time, pair, size, patience in schedule:
        world.after(time, lambda t=time, p=pair, s=size, q=patience: send(t, p, s, q))
    for time, party in outages:
        world.after(time, lambda p=party: transport.lose(p))
        world.after(time, lambda p=party: transport.shut(p))
        world.after(time + 1.0, lambda p=party: transport.open(p))

    async def time_passes() -> None:
        """Close as a run does, whose conclusion may take time: nothing may arrive then."""
        transport.close()
        await world.pause(100.0, "nothing")

    world.after(until, lambda: world.finish("end"))
    world.run()
    world.conclude(time_passes())
    return recorder, arrived, sent


outages = st.lists(st.tuples(st.integers(0, 20).map(float), st.integers(0, PARTIES - 1)), max_size=3)
gates = st.dictionaries(
    st.integers(0, PARTIES - 1), st.sampled_from([StepProfile([0, 3, 5], [1, 0, 1]), StepProfile([0, 1], [1, 0], 2)])
)


def nothing_is_lost_unnoticed(recorder, arrived, sent) -> None:
    """Every message is accounted for once: delivered whole, abandoned, lost or unfinished; and so are its bytes."""
    assert {t.state for t, _, _ in sent} <= {"delivered", "abandoned", "unfinished", "lost"}
    assert sorted(map(id, (m for _, m in arrived))) == sorted(
        id(t.message) for t, _, _ in sent if t.state == "delivered"
    )
    e = recorder.events.table
    rows = [i for i in range(len(e)) if e["kind"][i] == recorder.events.kinds.get("transfer.message")]
    assert len(rows) == len(sent)
    assert sum(e["bytes"][i] for i in rows) == recorder.bytes_up + recorder.bytes_down + recorder.bytes_peer
    whole = sum(t.size for t, _, _ in sent if t.state == "delivered")
    assert whole <= sum(e["bytes"][i] for i in rows) <= sum(t.size for t, _, _ in sent)


@dataclass(eq=False)
class Stay:
    """What one message does on ``fifo`` links: when it came, when it moved (from, to), and when it was gone."""

    transfer: Transfer
    came: float
    moved: list[tuple[float, float]] = field(default_factory=list)
    gone: float = math.inf

    def waits(self, now: float) -> bool:
        """Whether it is there just after ``now``, and does not move."""
        return self.came <= now < self.gone and not any(start <= now < end for start, end in self.moved)

    @property
    def links(self) -> frozenset[tuple[str, int]]:
        message = self.transfer.message
        return frozenset({("up", message.sender), ("down", message.receiver)})


@pytest.fixture
def stays(monkeypatch: pytest.MonkeyPatch) -> list[Stay]:
    """Note the stays of all messages on ``fifo`` links, in the order in which they come."""
    noted: dict[Transfer, Stay] = {}
    watched: list[Stay] = []

    def watch(name: str, note: Callable[[float, Transfer], None], first: bool) -> None:
        method = getattr(Queues, name)

        def called(self: Queues, transfer: Transfer) -> None:
            if first:
                note(self._world.instant, transfer)
            method(self, transfer)
            if not first:
                note(self._world.instant, transfer)

        monkeypatch.setattr(Queues, name, called)

    def come(now: float, transfer: Transfer) -> None:
        noted[transfer] = Stay(transfer, now)
        watched.append(noted[transfer])

    def begin(now: float, transfer: Transfer) -> None:
        noted[transfer].moved.append((now, math.inf))

    def end(now: float, transfer: Transfer) -> None:
        stay = noted[transfer]
        if stay.moved and stay.moved[-1][1] == math.inf:
            stay.moved[-1] = stay.moved[-1][0], now

    def go(now: float, transfer: Transfer) -> None:
        end(now, transfer)
        noted[transfer].gone = now

    watch("enter", come, first=True)
    watch("_move", begin, first=True)
    watch("_stand_aside", end, first=True)
    watch("_free", go, first=True)
    return watched


@settings(
    max_examples=examples(8), deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    ends=st.lists(exact_links, min_size=PARTIES, max_size=PARTIES),
    schedule=schedules,
    until=st.integers(1, 60),
    gates=gates,
    outages=outages,
)
def test_fifo_links_move_one_message_at_a_time_the_first_that_can_move_and_conserve_bytes(
    stays, ends, schedule, until, gates, outages
) -> None:
    stays.clear()
    recorder, arrived, sent = simulate(Fifo(), ends, schedule, float(until), gates, outages)
    nothing_is_lost_unnoticed(recorder, arrived, sent)
    if not any(link.limited for link in ends):
        return
    times = sorted({0.0, *(t for stay in stays for t in (stay.came, stay.gone, *chain(*stay.moved)) if t < until)})

    def busy(link: tuple[str, int], now: float) -> bool:
        return any(start <= now < end for s in stays if link in s.links for start, end in s.moved)

    def carries(stay: Stay, now: float) -> bool:
        return stay.transfer.path.profile.value(now) > 0

    for link in product(("up", "down"), range(PARTIES)):  # never two on one link
        moved = sorted(span for stay in stays if link in stay.links for span in stay.moved if span[0] < span[1])
        assert all(start >= end for (_, end), (start, _) in pairwise(moved))
    for stay in stays:  # nothing moves where nothing is carried
        for start, end in stay.moved:
            assert stay.transfer.path.profile.first_zero(start, min(end, until)) == math.inf
    for now in [*times, *(time for time in (1.0, 2.0, 3.0, 5.0, 6.0) if time < until)]:  # nobody waits for nothing
        for stay in stays:
            if stay.waits(now) and carries(stay, now):
                assert any(busy(link, now) for link in stay.links), (stay, now)
    for place, stay in enumerate(stays):  # and nobody is overtaken who could have moved
        for start, _ in stay.moved:
            for other in stays[:place]:
                if other.came < start and other.waits(start) and other.links & stay.links and carries(other, start):
                    ends_then = {s for s in stays if start in (end for _, end in s.moved) and s.links & other.links}
                    assert any(busy(link, start) for link in other.links - stay.links) or ends_then


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(
    ends=st.lists(links, min_size=PARTIES, max_size=PARTIES),
    schedule=schedules,
    until=st.integers(1, 60),
    gates=gates,
    outages=outages,
    network=st.sampled_from([Dedicated(), Fair()]),
)
def test_shared_and_dedicated_links_account_for_everything(ends, schedule, until, gates, outages, network) -> None:
    recorder, arrived, sent = simulate(network, ends, schedule, float(until), gates, outages)
    nothing_is_lost_unnoticed(recorder, arrived, sent)


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(
    ends=st.lists(links, min_size=PARTIES, max_size=PARTIES), schedule=schedules, gates=gates, outages=outages,
    network=st.sampled_from([Fifo(), Dedicated(), Fair()]),
)  # fmt: skip
def test_nothing_under_way_survives_an_outage_of_either_end(ends, schedule, gates, outages, network) -> None:
    recorder, _, sent = simulate(network, ends, schedule, 100.0, gates, outages)
    e = recorder.events.table
    for i in range(len(e)):
        for time, party in outages:
            # At the very time either may come first.
            assert party not in (e["party"][i], e["peer"][i]) or not e["start_s"][i] < time < e["end_s"][i]
    downs = [(time, party) for time, party in outages]
    for transfer, _, time in sent:
        if transfer.state == "lost":
            pair = (transfer.message.sender, transfer.message.receiver)
            assert any(party in pair and time <= down + 1.0 for down, party in downs)


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(ends=st.lists(links, min_size=PARTIES, max_size=PARTIES), schedule=schedules)
def test_dedicated_links_take_latency_plus_size_over_rate_whatever_else_happens(ends, schedule) -> None:
    _, arrived, sent = simulate(Dedicated(), ends, schedule, 1000.0)
    times = {id(message): time for time, message in arrived}
    for transfer, patience, began in sent:
        sender, receiver = ends[transfer.message.sender], ends[transfer.message.receiver]
        due = sender.latency.value + receiver.latency.value + 8 * transfer.size / min(sender.up, receiver.down)
        if patience is None or patience > due + 1e-9:
            assert abs(times[id(transfer.message)] - began - due) < 1e-9
        elif patience < due - 1e-9:
            assert id(transfer.message) not in times


@settings(max_examples=examples(250), deadline=None, derandomize=True)
@given(
    ends=st.lists(exact_links, min_size=PARTIES, max_size=PARTIES), schedule=schedules, slots=st.integers(1, 3),
    network=st.sampled_from([Fifo(), Dedicated(), Fair()]),
)  # fmt: skip
def test_a_server_handles_no_more_messages_at_a_time_than_it_has_slots_and_leaves_none_empty(
    ends, schedule, slots, network
) -> None:
    recorder, arrived, sent = simulate(network, ends, schedule, 200.0, concurrency=slots)
    nothing_is_lost_unnoticed(recorder, arrived, sent)
    table, kinds = recorder.events.table, recorder.events.kinds
    moved = [row for row in table if row["kind"] == kinds.get("transfer.message") and 0 in (row["party"], row["peer"])]

    def handled(now: float) -> int:
        return sum(row["start_s"] <= now < row["end_s"] for row in moved)

    if not any(link.limited for link in ends):
        return
    assert all(handled(row["start_s"]) <= slots for row in moved)
    for row in moved if network.kind != "fifo" else ():  # there, messages may wait for links besides
        sender, receiver = ends[row["party"]], ends[row["peer"]]
        came = row["sent_s"] + sender.latency.value + receiver.latency.value
        assert came >= row["start_s"] or all(
            handled(each["end_s"]) == slots for each in moved if came <= each["end_s"] < row["start_s"]
        )


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(
    ends=st.lists(links, min_size=PARTIES, max_size=PARTIES), schedule=schedules, gates=gates, outages=outages,
    slots=st.integers(1, 3), network=st.sampled_from([Fifo(), Dedicated(), Fair()]),
)  # fmt: skip
def test_a_server_with_slots_accounts_for_everything(ends, schedule, gates, outages, slots, network) -> None:
    nothing_is_lost_unnoticed(*simulate(network, ends, schedule, 60.0, gates, outages, slots))


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(
    ends=st.lists(exact_links, min_size=PARTIES, max_size=PARTIES), schedule=schedules,
    network=st.sampled_from([Fifo(), Dedicated(), Fair()]),
)  # fmt: skip
def test_more_slots_than_messages_change_nothing(ends, schedule, network) -> None:
    def times(slots: int | None) -> dict[int, float]:
        _, arrived, sent = simulate(network, ends, schedule, 200.0, concurrency=slots)
        places = {id(transfer.message): place for place, (transfer, _, _) in enumerate(sent)}
        return {places[id(message)]: time for time, message in arrived}

    assert times(len(schedule) + 1) == times(None)


@pytest.mark.parametrize("network", [Fifo(), Dedicated(), Fair()], ids=lambda network: network.kind)
@pytest.mark.parametrize("slots", [None, 1, 2])
@pytest.mark.parametrize("gate", [{}, {1: StepProfile([0, 50], [1, 0])}], ids=["constant", "gated"])
def test_what_the_end_of_a_run_cuts_never_arrives_even_if_a_message_enters_at_that_instant(network, slots, gate):
    ends = [Link(up=8.0, down=8.0)] * PARTIES
    schedule = [(0.0, (1, 0), 6, None), (0.0, (2, 0), 6, None), (0.0, (0, 1), 6, None), (2.0, (3, 0), 6, None)]
    recorder, arrived, sent = simulate(network, ends, schedule, 2.0, gate, concurrency=slots)
    nothing_is_lost_unnoticed(recorder, arrived, sent)
    assert not arrived
    assert [transfer.state for transfer, _, _ in sent] == ["unfinished"] * 4
