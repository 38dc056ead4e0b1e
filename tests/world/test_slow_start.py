"""How messages begin on connections of TCP, by hand and against packets sent one by one.

In most tests a packet is a byte and takes a second, so that sizes are packets; a latency of 3 s makes round trips of 6.
"""

from __future__ import annotations

import math
from collections import deque

import pytest
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.timing.capacity import LatencyMatrix, Link
from vflsim.timing.delays import Exponential
from vflsim.timing.party import Power
from vflsim.timing.profile import StepProfile
from vflsim.world import transfers
from vflsim.world.messages import Message
from vflsim.world.networks import Dedicated, Fair, Fifo, Tcp
from vflsim.world.record import Meter, Recorder
from vflsim.world.transfers import LEAST_TIMEOUT, PACKET, Connection, round_trip
from vflsim.world.transport import Transport
from vflsim.world.virtual import VirtualWorld

EVERY = pytest.mark.parametrize("network", [Fifo(), Dedicated(), Fair()], ids=lambda network: network.kind)
SLOW = Link(down=8.0, up=8.0, latency=3.0)
"""A server that moves a packet a second, three seconds from everybody."""
TIMEOUT = 6 + LEAST_TIMEOUT


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets of one byte."""
    monkeypatch.setattr(transfers, "PACKET", 1)


class Sent:
    """What a network does with messages: when each arrives (inf: never), and what is recorded."""

    def __init__(self, network, links, tcp=None, gates=None) -> None:
        self.world, self.recorder = VirtualWorld(TimingOnlyExecutor()), Recorder()
        self.transport = Transport(self.world, network, links, 0, self.recorder, gates, tcp or Tcp(initial_window=2))
        self.ends: dict[int, float] = {}
        self.transfers = []

    def send(self, *messages) -> Sent:
        """Send (time, sender, receiver, bytes) each at its time."""
        for number, (time, sender, receiver, size) in enumerate(messages):
            self.ends[number] = math.inf
            self.world.after(time, lambda n=number, of=(sender, receiver, size): self._send(n, *of))
        return self

    def _send(self, number, sender, receiver, size) -> None:
        message = Message()
        message.sender, message.receiver, message.sent = sender, receiver, self.world.now()
        self.transfers.append(self.transport.send(message, size, lambda _: self._arrive(number)))

    def _arrive(self, number) -> None:
        self.ends[number] = self.world.now()

    def until(self, time) -> list[float]:
        """Return when messages arrive, by a time; then the run ends."""
        self.world.after(time, lambda: self.world.finish("end"))
        self.world.run()
        self.transport.close()
        return [*self.ends.values()]


def alone(network, size, tcp=None, link=SLOW) -> float:
    """How long a first message takes."""
    [end] = Sent(network, [link, Link()], tcp).send((0, 1, 0, size)).until(1e9)
    return end


# --- one message ------------------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize(
    ("packets", "seconds"),
    [
        (0, 3), (1, 3 + 1), (2, 3 + 2),  # the first window
        (3, 3 + 7 + 1), (6, 3 + 7 + 4),  # of four after a round trip, and the second that the first packet took
        (7, 3 + 14 + 1), (14, 3 + 14 + 8), (20, 3 + 14 + 14), (1000, 3 + 14 + 994),  # eight fill the path
    ],
)  # fmt: skip
def test_a_window_follows_a_round_trip_after_the_first_packet_of_the_one_before(
    small, network, packets, seconds
) -> None:
    assert alone(network, packets) == seconds


@EVERY
def test_real_packets_have_1448_bytes(network) -> None:
    link = Link(down=8.0 * PACKET, latency=3.0)
    assert alone(network, 10 * PACKET, Tcp(), link) == 3 + 10
    # Ten fill a path of seven: what is left follows at once.
    assert alone(network, 10 * PACKET + 1, Tcp(), link) == pytest.approx(3 + 10 + 1 / PACKET)
    assert alone(network, 5 * PACKET, Tcp(initial_window=4), link) == 3 + 7 + 1


@EVERY
def test_without_a_limit_a_window_never_fills_the_path(small, network) -> None:
    link = Link(latency=3.0)
    assert [alone(network, packets, link=link) for packets in (2, 3, 6, 7, 14, 15)] == [3, 9, 9, 15, 15, 21]
    assert alone(network, 10**9, link=Link()) == 0


@EVERY
def test_without_latency_nothing_changes(small, network) -> None:
    assert alone(network, 100, link=Link(down=8.0)) == 100


def test_a_drawn_latency_counts_for_round_trips_by_its_mean(small) -> None:
    links = [Link(latency=Exponential(mean=2.0)), Link(latency=0.5), Link()]
    assert round_trip(links, None, 1, 0) == round_trip(links, None, 0, 1) == 5
    sent = Sent(Dedicated(), links).send((0, 1, 0, 3))
    [end] = sent.until(1e9)
    assert end == sent.transfers[0].latency[1] + 5


def test_a_matrix_of_latencies_counts_there_and_back(small, tmp_path) -> None:
    (tmp_path / "latency.csv").write_text("0 1\n2 0\n")
    network = Fair(latency=LatencyMatrix(file=str(tmp_path / "latency.csv")))
    assert alone(network, 3, link=Link()) == 2 + 3


@st.composite
def _worlds(draw):
    window, packet, trip = draw(st.integers(1, 12)), draw(st.integers(0, 8)), draw(st.integers(0, 200))
    return window, packet, trip, draw(st.integers(1, 400))


@settings(max_examples=examples(100), deadline=None)
@given(_worlds())
def test_a_message_alone_takes_as_long_as_packets_sent_one_by_one(drawn) -> None:
    """Packets enter a queue as the window lets them; each acknowledgement lets out two, and nothing is lost."""
    window, packet, trip, size = drawn
    rate = 8.0 * PACKET / packet if packet else math.inf
    end = alone(Dedicated(), size * PACKET, Tcp(initial_window=window), Link(down=rate, latency=trip / 2))
    acknowledged, free, left, may = deque([0.0] * 0), 0.0, size, window
    now = 0.0
    while True:
        while left and may:
            left, may, free = left - 1, may - 1, max(free, now) + packet
            acknowledged.append(free + trip)
        if not left:
            break
        now = acknowledged.popleft()
        may += 2
    assert end == pytest.approx(trip / 2 + free, rel=1e-12)


# --- one message after the other --------------------------------------------------------------------------------------


def test_windows_grow_by_what_is_acknowledged_and_stay_where_less_than_half_is_used(small) -> None:
    connection = Connection(10, True, 100.0, 1.0)

    def window_after(packets: int) -> int:
        connection.begin(connection.last, packets)
        connection.end(connection.last)
        return connection.window

    # As the kernel has them: 10 kB, then 64 kB three times.
    assert [window_after(packets) for packets in (7, 45, 45, 45, 1)] == [14, 59, 90, 90, 90]
    assert [window_after(packets) for packets in (200, 10)] == [202, 202]  # twice what fills the path


@EVERY
@pytest.mark.parametrize(
    ("idle", "seconds", "tcp"),
    [
        (TIMEOUT - 1e-6, 3 + 4, None),
        (TIMEOUT + 1e-6, 3 + 7 + 2, None),
        (1e6, 3 + 7 + 2, None),
        (1e6, 3 + 4, Tcp(initial_window=2, idle_reset=False)),
    ],
)
def test_a_window_is_kept_for_a_timeout(small, network, idle, seconds, tcp) -> None:
    """Two packets arrive after 5 s, the last of which was sent after 2, and leave a window of four."""
    again = 2 + idle
    sent = Sent(network, [SLOW, Link()], tcp).send((0, 1, 0, 2), (again, 1, 0, 4))
    assert sent.until(1e9) == pytest.approx([5, again + seconds])


@pytest.mark.parametrize(
    ("timeouts", "window"), [(0.99, 160), (1.01, 80), (1.99, 80), (2.01, 40), (3.01, 20), (9, 10), (1e9, 10)]
)
def test_each_timeout_but_the_first_halves_the_window_down_to_the_initial_one(timeouts, window) -> None:
    connection = Connection(10, True, 1.0, 0.001)
    connection.window = 160
    assert connection.begin(timeouts * 1.2, 1) == window


def test_a_connection_in_use_is_not_idle(small) -> None:
    sent = Sent(Dedicated(), [SLOW, Link()]).send((0, 1, 0, 1000), (500, 1, 0, 14))
    assert sent.until(1e9) == [3 + 14 + 994, 500 + 3 + 14]


def test_both_ways_and_other_pairs_have_windows_of_their_own(small) -> None:
    sent = Sent(Dedicated(), [SLOW, Link(), Link()])
    sent.send((0, 1, 0, 2), (6, 1, 0, 4), (6, 0, 1, 4), (6, 2, 0, 4), (6, 0, 2, 4))
    assert sent.until(1e9) == [5, 6 + 3 + 4, *[6 + 3 + 7 + 2] * 3]


# --- several messages -------------------------------------------------------------------------------------------------


def test_messages_share_a_link_while_their_windows_move(small) -> None:
    """Two move at half the rate until 7; four each from 10 to 18; and the last one each until 20, without a wait."""
    sent = Sent(Fair(), [SLOW, Link(), Link()]).send((0, 1, 0, 7), (0, 2, 0, 7))
    assert sent.until(1e9) == [20, 20]


def test_another_message_moves_on_a_serial_line_while_one_waits_for_its_acknowledgement(small) -> None:
    """Windows move from 3, 5, 10 and 14 on; the last one waits for its line."""
    sent = Sent(Fifo(), [SLOW, Link(), Link()]).send((0, 1, 0, 6), (0, 2, 0, 6))
    assert sent.until(1e9) == [14, 18]


@EVERY
@pytest.mark.parametrize(("cut", "through"), [(1, 0), (4, 1), (8, 2), (11, 3), (13, 5)])
def test_bytes_of_all_windows_count_of_a_message_that_is_abandoned(small, network, cut, through) -> None:
    sent = Sent(network, [SLOW, Link()]).send((0, 1, 0, 6), (20, 1, 0, 2))
    sent.world.after(cut, lambda: sent.transport.abandon(sent.transfers[0]))
    assert sent.until(1e9) == [math.inf, 25]
    assert sent.recorder.bytes_up == through + 2
    events = sent.recorder.events.table
    assert [row for row in zip(events["start_s"], events["end_s"], events["bytes"], strict=True) if row[2]] == [
        *([(3, cut, through)] if through else []), (23, 25, 2)
    ]  # fmt: skip


@EVERY
def test_the_radio_is_on_from_the_first_byte_to_the_last(small, network) -> None:
    sent = Sent(network, [SLOW, Link()])
    power = Power(idle=0.0, radio=1.0)
    sent.transport._carrier.meter = sent.recorder.meter = meter = Meter({1: power})
    sent.send((0, 1, 0, 6), (20, 1, 0, 6))
    sent.world.after(28, lambda: sent.transport.abandon(sent.transfers[1]))  # between two windows
    assert sent.until(40) == [14, math.inf]
    energy = meter.by_party(40)
    assert sum(energy["joules"]) == pytest.approx((14 - 3) + (28 - 23))


@EVERY
def test_a_client_that_is_away_longer_than_a_timeout_begins_anew(small, network) -> None:
    gates = {1: StepProfile([0.0, 5.5, 30.0], [1.0, 0.0, 1.0])}
    sent = Sent(network, [SLOW, Link()], gates=gates).send((0, 1, 0, 2), (30, 1, 0, 4))
    assert sent.until(1e9) == [5, 30 + 3 + 7 + 2]
    # Three packets: half a one stands aside from 5.5 on, and the window after it follows at once.
    sent = Sent(network, [SLOW, Link()], gates=gates).send((1, 1, 0, 3))
    assert sent.until(1e9) == [31.5]


@EVERY
def test_a_crash_ends_connections(small, network) -> None:
    sent = Sent(network, [SLOW, Link()]).send((0, 1, 0, 2), (6, 1, 0, 4))
    sent.world.after(5.5, lambda: sent.transport.lose(1))
    assert sent.until(1e9) == [5, 6 + 3 + 7 + 2]


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from([Fifo(), Dedicated(), Fair()]),
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3), st.booleans(), st.integers(0, 40)), max_size=10),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=4),
)
def test_every_message_ends_once_with_all_its_bytes_or_is_cut(network, messages, cuts) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfers, "PACKET", 1)
        links = [SLOW, Link(up=16.0), Link(latency=1.0), Link(down=4.0)]
        sent = Sent(network, links).send(*((t, c, 0, n) if up else (t, 0, c, n) for t, c, up, n in messages))

        def abandon(number: int) -> None:
            if number < len(sent.transfers):
                sent.transport.abandon(sent.transfers[number])

        for number, time in cuts:
            sent.world.after(float(time), lambda n=number: abandon(n))
        sent.until(2_000)
    assert not sent.transport._open
    assert sent.transport._carrier._flights == {}
    assert all(each.busy == 0 for each in sent.transport._carrier._connections.values())
    delivered = sum(each.size for each in sent.transfers if each.state == "delivered")
    moved = sent.recorder.bytes_up + sent.recorder.bytes_down
    assert delivered <= moved <= sum(n for *_, n in messages)
    assert {each.state for each in sent.transfers} <= {"delivered", "abandoned"}
