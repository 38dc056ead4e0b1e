"""Fair links, against timelines worked out by hand. A link of 8 bit/s moves a byte a second."""

from __future__ import annotations

import math
from functools import partial

import pytest

from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.timing.capacity import Link
from vflsim.world.messages import Message
from vflsim.world.networks import Fair
from vflsim.world.record import Recorder
from vflsim.world.transport import Transport
from vflsim.world.virtual import VirtualWorld


class Net:
    """A transport whose messages are told by (time, sender, receiver, bytes); notes when each arrives."""

    def __init__(self, *links: Link) -> None:
        self.world, self.recorder = VirtualWorld(TimingOnlyExecutor()), Recorder()
        self.transport = Transport(self.world, Fair(), links, 0, self.recorder)
        self.sent, self.arrived = {}, {}
        self.solved = []
        share = self.transport._carrier._share
        self.transport._carrier._share = lambda: (self.solved.append(self.world.now()), share())

    def send(self, name, sender, receiver, size, then=lambda: None) -> None:
        message = Message()
        message.sender, message.receiver, message.sent = sender, receiver, self.world.now()

        def arrived(message: Message) -> None:
            self.arrived[name] = self.world.now()
            then()

        self.sent[name] = self.transport.send(message, size, arrived)

    def at(self, time, call, *more) -> None:
        self.world.after(time, partial(call, *more))

    def run(self, end=1000.0):
        self.world.after(end, lambda: self.world.finish("end"))
        self.world.run()
        self.transport.close()
        return self.arrived


def links(*rates):
    """Links of so many bytes a second, up and down."""
    return [Link(up=8 * up, down=8 * down) for up, down in rates]


INF = math.inf


def test_equals_share_and_those_left_get_more() -> None:
    net = Net(*links((INF, 2), (INF, INF), (INF, INF)))
    net.at(0, net.send, "a", 1, 0, 6)
    net.at(0, net.send, "b", 2, 0, 2)
    # A byte a second each; b is through at 2, and a has four bytes left at two a second.
    assert net.run() == {"b": 2, "a": 4}


def test_what_one_cannot_use_another_gets() -> None:
    net = Net(*links((INF, 4), (1, INF), (INF, INF)))
    net.at(0, net.send, "slow", 1, 0, 3)
    net.at(0, net.send, "fast", 2, 0, 8)
    # 1 and 3 bytes a second; fast is through at 8/3.
    assert net.run() == {"fast": pytest.approx(8 / 3, rel=1e-15), "slow": 3}


def test_a_newcomer_takes_its_share() -> None:
    net = Net(*links((INF, 2), (INF, INF), (INF, INF)))
    net.at(0, net.send, "a", 1, 0, 8)
    net.at(1, net.send, "b", 2, 0, 2)
    assert net.run() == {"b": 3, "a": 5}


def test_latency_is_paid_first_and_occupies_nothing() -> None:
    down = links((INF, 2))
    net = Net(*down, Link(latency=1.0), Link())
    net.at(0, net.send, "late", 1, 0, 2)
    net.at(0, net.send, "now", 2, 0, 4)
    # now has the link for itself until 1, when two of its bytes are left.
    assert net.run() == {"now": 3, "late": 3}


def test_messages_of_one_pair_count_one_by_one() -> None:
    net = Net(*links((INF, 3), (INF, INF), (INF, INF)))
    for name in ("a", "b"):
        net.at(0, net.send, name, 1, 0, 3)
    net.at(0, net.send, "c", 2, 0, 3)
    assert net.run() == {"a": 3, "b": 3, "c": 3}


def test_clients_among_themselves_share_only_what_they_cross() -> None:
    """The example of the pages on max–min fairness: one long way round, two short ones."""
    net = Net(*links((INF, INF), (2, 2), (2, 2), (2, 2)))
    net.at(0, net.send, "1 to 2", 1, 2, 4)
    net.at(0, net.send, "1 to 3", 1, 3, 4)
    net.at(0, net.send, "2 to 3", 2, 3, 4)
    # Client 1's up-link and client 3's down-link are shared by two; 2's up-link is not full. All end at 4.
    assert net.run() == {"1 to 2": 4, "1 to 3": 4, "2 to 3": 4}
    assert (net.recorder.bytes_peer, net.recorder.bytes_up, net.recorder.bytes_down) == (12, 0, 0)


def test_an_abandoned_message_leaves_its_share_to_the_others() -> None:
    net = Net(*links((INF, 2), (INF, INF), (INF, INF)))
    net.at(0, net.send, "a", 1, 0, 6)
    net.at(0, net.send, "b", 2, 0, 9)
    net.at(2, lambda: net.transport.abandon(net.sent["b"]))
    assert net.run() == {"a": 4}
    assert net.recorder.bytes_up == 6 + 2


def test_one_solution_an_instant_after_all_its_changes() -> None:
    net = Net(*links((INF, 4), *[(INF, INF)] * 4))
    for client in (1, 2, 3, 4):
        net.at(1, net.send, client, client, 0, 2)
    for client in (1, 2):
        net.at(2, lambda c=client: net.transport.abandon(net.sent[c]))
    net.at(2, net.send, "late", 1, 0, 1)
    # At 1 four, at 2 three (a byte left of each), at 2.75 all are through at once.
    assert net.run() == {3: 2.75, 4: 2.75, "late": 2.75}
    assert net.solved == [1, 2]  # nothing is left to share at 2.75


def test_what_arrives_together_arrives_in_the_order_of_its_senders() -> None:
    net = Net(*links((INF, 4), *[(1, INF)] * 4))
    for client in (3, 1, 4, 2):
        net.at(0, net.send, client, client, 0, 2)
    assert list(net.run()) == [1, 2, 3, 4]


def test_an_arrival_that_makes_another_of_the_same_instant_useless_comes_first() -> None:
    net = Net(*links((INF, 4), (1, INF), (1, INF)))
    net.at(0, net.send, "first", 1, 0, 2, lambda: net.transport.abandon(net.sent["second"]))
    net.at(0, net.send, "second", 2, 0, 2)
    assert net.run() == {"first": 2}
    assert net.recorder.bytes_up == 4  # all of it was through
    assert net.sent["second"].state == "abandoned"


def test_a_message_abandoned_in_the_instant_it_was_sent_never_counts() -> None:
    net = Net(*links((INF, 4), (INF, INF), (INF, INF)))
    net.at(1, net.send, "gone", 1, 0, 8)
    net.at(1, lambda: net.transport.abandon(net.sent["gone"]))
    net.at(1, net.send, "here", 2, 0, 8)
    assert net.run() == {"here": 3}
    assert net.recorder.bytes_up == 8


def test_a_message_abandoned_as_it_completes_is_not_delivered() -> None:
    net = Net(*links((INF, 4), (INF, INF)))
    net.at(0, net.send, "a", 1, 0, 8)
    net.at(2, lambda: net.transport.abandon(net.sent["a"]))  # scheduled before the completion
    assert net.run() == {}
    assert net.recorder.bytes_up == 8


def test_without_limits_a_message_arrives_in_the_instant_it_is_sent() -> None:
    net = Net(*links((INF, INF), (INF, INF), (1, 1)))
    net.at(1, net.send, "a", 1, 0, 10**9)
    net.at(1, net.send, "empty", 2, 0, 0)
    assert net.run() == {"a": 1, "empty": 1}
    assert net.solved == []


def test_a_reply_goes_out_in_the_instant_of_an_arrival() -> None:
    net = Net(*links((2, 2), (1, 1)))
    net.at(0, net.send, "there", 1, 0, 3, lambda: net.send("back", 0, 1, 2))
    assert net.run() == {"there": 3, "back": 5}


def test_alarms_that_ring_too_early_do_no_harm() -> None:
    """Every newcomer puts off the completion that the alarm was set for; and nothing is left of it in the end."""
    net = Net(*links((INF, 1), *[(INF, INF)] * 3))
    net.at(0, net.send, "a", 1, 0, 4)
    net.at(1, net.send, "b", 2, 0, 4)
    net.at(2, net.send, "c", 3, 0, 4)
    # a has 3 bytes left at 1, 2.5 at 2, and is through at 9.5; then b has 1 left, and c 1.5 more than that … by hand:
    # b: 4 − 0.5 − 2.5 = 1 at 9.5, c: 4 − 2.5 = 1.5; both at 0.5 a second: b at 11.5, when c has 0.5 left, until 12.
    assert net.run() == {"a": 9.5, "b": 11.5, "c": 12.0}


@pytest.mark.parametrize("unit", [1, 1000, 123_456_789])
def test_the_error_does_not_grow_with_the_number_of_solutions(unit) -> None:
    """A thousand short messages come and go beside a long one, on a link that is never idle."""
    net = Net(*links((INF, 3), (INF, INF), (INF, INF)))
    net.at(0, net.send, "long", 1, 0, 10_000 * unit)
    for k in range(1000):
        net.at(0.8 * unit * k, net.send, k, 2, 0, unit)
    assert net.run(end=1e12)["long"] == pytest.approx(11_000 * unit / 3, rel=1e-14)
    assert len(net.solved) >= 2000
