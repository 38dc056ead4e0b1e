"""Whatever is sent and abandoned, links keep their word (random schedules)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.timing.link import Link
from vflsim.timing.profile import StepProfile
from vflsim.world.messages import Message
from vflsim.world.networks import Dedicated, Fair, Fifo
from vflsim.world.record import Recorder
from vflsim.world.transport import Transfer, Transport
from vflsim.world.virtual import VirtualWorld

PARTIES = 4
rates = st.sampled_from([8.0, 16.0, 24.0, float("inf")])
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


def simulate(network, ends, schedule, until: float, gates=None, outages=()):
    """What a transport does with a schedule: who came to the links in which order, records, arrivals, transfers."""
    world, recorder = VirtualWorld(TimingOnlyExecutor()), Recorder()
    transport = Transport(world, network, ends, 0, recorder, gates)
    queued: list[Transfer] = []
    enter = transport._carrier.enter
    transport._carrier.enter = lambda transfer: (queued.append(transfer), enter(transfer))  # type: ignore[assignment]
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
    world.after(until, lambda: world.finish("end"))
    world.run()
    transport.close()
    return queued, recorder, arrived, sent


def intervals(recorder: Recorder, column: str, party: int) -> list[tuple[float, float]]:
    e = recorder.events.table
    transfer = next((code for kind, code in recorder.events.kinds.items() if kind.startswith("transfer.")), -1)
    spans = [
        (e["start_s"][i], e["end_s"][i])
        for i in range(len(e))
        if e["kind"][i] == transfer and e[column][i] == party and e["end_s"][i] > e["start_s"][i]
    ]
    return sorted(spans)


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


@settings(max_examples=examples(250), deadline=None, derandomize=True)
@given(
    ends=st.lists(links, min_size=PARTIES, max_size=PARTIES),
    schedule=schedules,
    until=st.integers(1, 60),
    gates=gates,
    outages=outages,
)
def test_fifo_links_move_one_message_at_a_time_in_order_and_conserve_bytes(
    ends, schedule, until, gates, outages
) -> None:
    queued, recorder, arrived, sent = simulate(Fifo(), ends, schedule, float(until), gates, outages)
    nothing_is_lost_unnoticed(recorder, arrived, sent)

    # Never two moving transfers on one up link, nor on one down link.
    for column in ("party", "peer"):
        for party in range(PARTIES):
            for (_, end), (start, _) in pairwise(intervals(recorder, column, party)):
                assert start >= end - 1e-9

    # Each link starts its transfers in the order in which they came to it.
    place = {transfer: k for k, transfer in enumerate(queued)}
    moved = [transfer for transfer in queued if transfer.began == transfer.began]
    for end in ("sender", "receiver"):
        for party in range(PARTIES):
            began = [(t.began, place[t]) for t in moved if getattr(t.message, end) == party]
            assert sorted(began) == sorted(began, key=lambda pair: pair[1])

    # Nobody is kept waiting on an idle pair of links: at the end, the head of both its lines would be moving.
    # (States were cut when the run ended, so this looks at who had started.)
    waiting = [t for t in queued if t not in moved and t.state == "unfinished"]
    moving = [t for t in moved if t.state == "unfinished"]
    for transfer in waiting:
        ahead = [t for t in waiting + moving if t is not transfer and place[t] < place[transfer]]
        assert any(
            t.message.sender == transfer.message.sender or t.message.receiver == transfer.message.receiver
            for t in ahead
        )


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
    _, recorder, arrived, sent = simulate(network, ends, schedule, float(until), gates, outages)
    nothing_is_lost_unnoticed(recorder, arrived, sent)


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(
    ends=st.lists(links, min_size=PARTIES, max_size=PARTIES), schedule=schedules, gates=gates, outages=outages,
    network=st.sampled_from([Fifo(), Dedicated(), Fair()]),
)  # fmt: skip
def test_nothing_under_way_survives_an_outage_of_either_end(ends, schedule, gates, outages, network) -> None:
    _, recorder, _, sent = simulate(network, ends, schedule, 100.0, gates, outages)
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
    _, _, arrived, sent = simulate(Dedicated(), ends, schedule, 1000.0)
    times = {id(message): time for time, message in arrived}
    for transfer, patience, began in sent:
        sender, receiver = ends[transfer.message.sender], ends[transfer.message.receiver]
        due = sender.latency.value + receiver.latency.value + 8 * transfer.size / min(sender.up, receiver.down)
        if patience is None or patience > due + 1e-9:
            assert abs(times[id(transfer.message)] - began - due) < 1e-9
        elif patience < due - 1e-9:
            assert id(transfer.message) not in times
