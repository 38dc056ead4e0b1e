"""Fair links against an exact simulator of fluid flows: random flows, capacities that change, gates that shut."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate

import pytest
from fluid import Flow, simulate
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.timing.capacity import Link
from vflsim.timing.profile import StepProfile
from vflsim.world.messages import Message
from vflsim.world.networks import Fair
from vflsim.world.record import OUTCOMES, Recorder
from vflsim.world.transport import Transport
from vflsim.world.virtual import VirtualWorld

PARTIES = 4
END = 60 + 1 / 1024  # no completion meets it by accident
INF = math.inf


def steps_of(values):
    """A first step at 0 and further ones at quarters."""
    gaps = st.lists(st.integers(1, 40), max_size=3)
    return gaps.flatmap(
        lambda gaps: st.lists(values, min_size=len(gaps) + 1, max_size=len(gaps) + 1).map(
            lambda chosen: list(zip(accumulate([0, *(gap / 4 for gap in gaps)]), chosen, strict=True))
        )
    )


capacities = st.one_of(
    st.sampled_from([8.0, 16.0, 24.0, INF]).map(lambda rate: [(0, rate)]),
    steps_of(st.sampled_from([0.0, 1.0, 8.0, 12.0, 40.0, INF])).filter(lambda steps: any(rate for _, rate in steps)),
)
gates = st.one_of(st.just([(0, 1.0)]), st.just([(0, 1.0)]), steps_of(st.sampled_from([0.0, 1.0])))
pairs = st.tuples(st.integers(0, PARTIES - 1), st.integers(0, PARTIES - 1)).filter(lambda pair: pair[0] != pair[1])
messages = st.lists(
    st.tuples(
        st.integers(0, 48).map(lambda n: n / 4),  # sent at
        pairs,
        st.integers(0, 30),  # bytes
        st.one_of(st.none(), st.none(), st.integers(0, 40).map(lambda n: n / 4 + 1 / 1024)),  # abandoned so long after
    ),
    min_size=1,
    max_size=10,
)


def as_capacity(steps):
    return steps[0][1] if len(steps) == 1 else [[time, rate] for time, rate in steps]


def run(links, doors, sent):
    """Times of arrival and bytes through, by message, and the transport's records."""
    world, recorder = VirtualWorld(TimingOnlyExecutor()), Recorder()
    ends = [Link(up=as_capacity(up), down=as_capacity(down), latency=latency) for up, down, latency in links]
    gates = {party: StepProfile(*zip(*steps, strict=True)) for party, steps in enumerate(doors)}
    transport = Transport(world, Fair(), ends, 0, recorder, gates)
    arrived: dict[int, float] = {}

    def send(k: int) -> None:
        _, (sender, receiver), size, patience = sent[k]
        message = Message(round=k)
        message.sender, message.receiver, message.sent = sender, receiver, world.now()
        transfer = transport.send(message, size, lambda m: arrived.__setitem__(m.round, world.now()))
        if patience is not None:
            world.after(patience, lambda: transport.abandon(transfer))

    for k, (time, *_) in enumerate(sent):
        world.after(time, lambda k=k: send(k))
    world.after(END, lambda: world.finish("end"))
    world.run()
    transport.close()
    kind = recorder.events.kinds["transfer.message"]
    rows = {e["round"]: (OUTCOMES[e["outcome"]], e["bytes"]) for e in recorder.events.table if e["kind"] == kind}
    return arrived, rows


def gated(capacity, gate):
    """A capacity behind a gate, as steps."""
    times = sorted({time for time, _ in (*capacity, *gate)})
    at = lambda steps, t: [rate for time, rate in steps if time <= t][-1]  # noqa: E731
    return [(Fraction(t), at(capacity, t) if at(gate, t) else 0.0) for t in times]


def agrees(links, doors, sent) -> None:
    """Assert that the transport and the exact simulator say the same."""
    arrived, rows = run(links, doors, sent)
    steps = [gated(links[p][0], doors[p]) for p in range(len(links))]
    steps += [gated(links[p][1], doors[p]) for p in range(len(links))]
    flows = []
    for time, (sender, receiver), size, patience in sent:
        start = Fraction(time) + Fraction(links[sender][2]) + Fraction(links[receiver][2])
        abandoned = None if patience is None else Fraction(time) + Fraction(patience)
        flows.append(Flow(start, sender, len(links) + receiver, Fraction(8 * size), abandoned))
    for k, (end, bits) in enumerate(simulate(flows, steps, Fraction(END))):
        outcome, size = rows[k]
        if end is not None:
            assert arrived[k] == pytest.approx(float(end), rel=1e-9)
            assert (outcome, size) == ("done", sent[k][2])
        else:
            assert k not in arrived
            assert outcome == ("unfinished" if flows[k].abandoned is None or flows[k].abandoned >= END else "abandoned")
            assert math.floor(bits / 8 - Fraction(1, 10**6)) <= size <= math.floor(bits / 8 + Fraction(1, 10**6))


@settings(max_examples=examples(250), deadline=None, derandomize=True)
@given(
    links=st.lists(
        st.tuples(capacities, capacities, st.sampled_from([0.0, 0.0, 0.5, 1.25])), min_size=PARTIES, max_size=PARTIES
    ),
    doors=st.lists(gates, min_size=PARTIES, max_size=PARTIES),
    sent=messages,
)
def test_fair_links_are_exact_fluid_flows(links, doors, sent) -> None:
    agrees(links, doors, sent)


constant = st.sampled_from([8.0, 16.0, 24.0, 40.0, INF]).map(lambda rate: [(0, rate)])
to_or_from_the_server = st.tuples(st.integers(1, PARTIES - 1), st.booleans()).map(
    lambda way: (way[0], 0) if way[1] else (0, way[0])
)


@settings(max_examples=examples(250), deadline=None, derandomize=True)
@given(
    links=st.lists(
        st.tuples(constant, constant, st.sampled_from([0.0, 0.0, 0.5, 1.25])), min_size=PARTIES, max_size=PARTIES
    ),
    sent=st.lists(
        st.tuples(
            st.integers(0, 48).map(lambda n: n / 4),
            to_or_from_the_server,
            st.integers(0, 30),
            st.one_of(st.none(), st.none(), st.integers(0, 40).map(lambda n: n / 4 + 1 / 1024)),
        ),
        min_size=1,
        max_size=14,
    ),
    among_clients=st.booleans(),
)
def test_so_are_those_that_share_the_server_s_link_alone_and_a_later_message_among_clients_moves_nothing(
    links, sent, among_clients
) -> None:
    unlike = [  # no message is given up as another, which had a part of its rate, completes
        (time, pair, size, None if patience is None else patience + 2.0**-20 * 3**place)
        for place, (time, pair, size, patience) in enumerate(sent)
    ]
    later = [(6.25, (1, 2), 5, None)] if among_clients else []
    agrees(links, [[(0, 1.0)]] * PARTIES, [*unlike, *later])
