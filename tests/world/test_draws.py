"""Which draw a wait gets: index = how often the party began that kind of activity (common random numbers)."""

from __future__ import annotations

import pytest

from vflsim.timing.activation import Poisson
from vflsim.timing.delays import Constant, Exponential, Mixture, Uniform
from vflsim.timing.sampler import Sampler
from vflsim.world.party import Draws

LAW = Uniform(low=0.5, high=1.5)
SEED = 7


def draw(purpose: str, index: int, party: int = 1, law=LAW) -> float:
    return Sampler(law, SEED, party, purpose).draw(index)


def test_the_kth_draw_is_the_same_whatever_is_asked_in_between() -> None:
    straight, mixed = Draws(SEED, 1), Draws(SEED, 1)
    expected = [straight.next("upload", LAW) for _ in range(200)]
    found = []
    for k in range(200):
        for _ in range(k % 3):
            mixed.next("compute.embed", LAW)
        found.append(mixed.next("upload", LAW))
    assert found == expected == [(k, draw("upload", k)) for k in range(200)]


def test_purposes_and_parties_have_streams_of_their_own() -> None:
    values = {
        Draws(SEED, party).next(purpose, LAW)[1] for party in (0, 1, 2) for purpose in ("upload", "compute.embed")
    }
    assert len(values) == 6


def test_durations_follow_the_draws_of_their_purpose(virtual) -> None:
    world = virtual(1, compute=LAW, upload=LAW)

    async def client(node):
        for _ in range(2):
            await node.compute(virtual.work("embed", 1))
            await node.compute(virtual.work("client_step", 1))
            await node.upload("server", virtual.ball())

    world.run(virtual.idle, client)
    found = {(row["kind"], row["index"]): row for row in world.events() if not row["kind"].startswith("transfer")}
    assert list(found) == [
        ("compute.embed", 0), ("compute.client_step", 0), ("upload.ball", 0),
        ("compute.embed", 1), ("compute.client_step", 1), ("upload.ball", 1),
    ]  # fmt: skip
    for (kind, index), row in found.items():
        assert row["drawn"] == draw(kind, index)
        assert row["end"] - row["start"] == pytest.approx(row["drawn"], rel=1e-12)


def test_the_upload_of_an_embedding_has_the_purpose_upload(virtual) -> None:
    from vflsim.world.messages import Embedding

    world = virtual(1, upload=LAW)

    async def client(node):
        await node.upload("server", Embedding(value=virtual.ball(3).value))

    world.run(virtual.idle, client)
    assert [(row["kind"], row["drawn"]) for row in world.events("upload")] == [("upload", draw("upload", 0))]


def test_abandoned_work_uses_up_its_index_and_skipped_work_does_not(tiny) -> None:
    world = tiny(1, compute=Uniform(low=1.0, high=1.5), upload=Uniform(low=1.0, high=1.5))

    async def client(node):
        async with node.until("halt"):
            await node.compute(tiny.work("embed", 1))  # index 0, abandoned
            await node.upload("server", tiny.ball())  # never begun
        async with node.until("halt"):  # here already: skipped
            await node.compute(tiny.work("embed", 1))
        await node.recv("halt")
        await node.compute(tiny.work("embed", 1))  # index 1
        async with node.until("halt"):
            await node.upload("server", tiny.ball())  # index 0, abandoned
        await node.upload("server", tiny.ball())  # index 1

    async def server(node):
        await node.sleep(0.5)
        await node.send(1, tiny.Halt())
        await node.sleep(2)
        while "compute.embed" not in {row["kind"] for row in world.events() if row["outcome"] == "done"}:
            await node.sleep(0.1)
        await node.send(1, tiny.Halt())
        await node.recv("ball")

    world.run(server, client)
    rows = [(row["kind"], row["index"], row["outcome"]) for row in world.events() if "transfer" not in row["kind"]]
    assert rows == [
        ("compute.embed", 0, "abandoned"),
        ("compute.embed", 1, "done"),
        ("upload.ball", 0, "abandoned"),
        ("upload.ball", 1, "done"),
    ]
    law = Uniform(low=1.0, high=1.5)
    assert [row["drawn"] for row in world.events("compute")] == [draw("compute.embed", k, law=law) for k in (0, 1)]


def test_a_place_in_the_processors_queue_given_up_uses_up_nothing(tiny) -> None:
    world = tiny(1, compute=tiny.constant(2))

    async def beside(node):
        await node.compute(tiny.work("embed", 1))

    async def client(node):
        node.start(beside(node))
        await node.sleep(0.5)
        async with node.until("halt"):
            await node.compute(tiny.work("embed", 1))
        await node.compute(tiny.work("embed", 1))

    async def server(node):
        await node.sleep(1)
        await node.send(1, tiny.Halt())

    world.run(server, client)
    assert [row["index"] for row in world.events("compute.embed")] == [0, 1]


def test_an_abandoned_message_uses_up_its_latency_and_leaves_an_event(virtual) -> None:
    world = virtual(1, links={1: virtual.Link(latency=Uniform(low=2.0, high=3.0))})

    async def client(node):
        async with node.until("halt"):
            await node.send("server", virtual.ball())
            await node.sleep(9)
        await node.send("server", virtual.ball())

    async def server(node):
        await node.sleep(1)
        await node.free().send(1, virtual.Halt())
        await node.recv("ball")

    world.run(server, client)
    law = Uniform(low=2.0, high=3.0)
    found = [(row["index"], row["drawn"], row["outcome"]) for row in world.events("latency")]
    first, second = (draw("latency.client-1→server", index, law=law) for index in (0, 1))
    assert found == [(0, first, "abandoned"), (1, second, "done")]


def test_a_latency_drawn_to_be_nothing_leaves_an_event_as_any_other(virtual) -> None:
    law = Mixture(weights=(1, 1), parts=(Constant(value=0.0), Constant(value=2.0)))
    world = virtual(1, links={1: virtual.Link(latency=law)})

    async def client(node):
        for _ in range(9):
            await node.send("server", virtual.ball())

    async def server(node):
        for _ in range(9):
            await node.recv("ball")

    world.run(server, client)
    found = sorted((row["index"], row["drawn"], row["end"]) for row in world.events("latency"))
    drawn = [draw("latency.client-1→server", index, law=law) for index in range(9)]
    assert found == [(index, seconds, seconds) for index, seconds in enumerate(drawn)]
    assert set(drawn) == {0.0, 2.0}


def test_two_protocols_that_ask_in_different_orders_meet_the_same_delays(virtual) -> None:
    """One computes and uploads in turn, the other uploads four times, then computes; abandoned work on the way."""

    def delays(plan: str) -> dict[tuple[str, int], float]:
        world = virtual(1, compute=LAW, upload=Exponential(mean=1.0))

        async def client(node):
            for letter in plan:
                if letter == "c":
                    await node.compute(virtual.work("embed", 1))
                elif letter == "u":
                    await node.upload("server", virtual.ball())
                else:
                    node.arrived("halt")
                    async with node.until("halt"):
                        await node.upload("server", virtual.ball())

        async def server(node):
            while True:
                await node.sleep(0.37)
                await node.send(1, virtual.Halt())

        async def main(node):
            await client(node)
            world.world.finish("done")

        world.run(server, main)
        kinds = ("compute.embed", "upload.ball")
        return {(row["kind"], row["index"]): row["drawn"] for row in world.events() if row["kind"] in kinds}

    one, other = delays("cucucucu"), delays("xuxucccc")
    assert one == other
    assert len(one) == 8


# --- activation -------------------------------------------------------------------------------------------------------


def arrivals(count: int, rate: float = 1.0, party: int = 1) -> list[float]:
    total, times = 0.0, []
    for k in range(count):
        total += draw("activation", k, party, Exponential(mean=1 / rate))
        times.append(total)
    return times


@pytest.mark.parametrize("busy", ["skip", "queue"])
def test_a_poisson_client_is_activated_by_the_clock_alone(virtual, busy) -> None:
    world = virtual(1, activation=lambda p: Poisson(rate=1.0, busy=busy).process(SEED, p) if p else None)

    async def client(node):
        for _ in range(6):
            await node.activated()
            world.log("active")
            await node.sleep(1.5)

    world.run(virtual.idle, client)
    times, found = arrivals(50), [time for time, _ in world.entries]
    free, expected = 0.0, []
    for k in range(6):
        begin = next(t for t in times if t > free) if busy == "skip" else max(free, times[k])
        expected.append(begin)
        free = begin + 1.5
    assert found == pytest.approx(expected, abs=1e-8)
    indices = [row["index"] for row in world.events("activation")]
    assert indices == sorted(set(indices))
    if busy == "queue":
        assert indices == list(range(6))


def test_an_abandoned_wait_for_an_activation_does_not_use_it_up(virtual) -> None:
    first, second = arrivals(2)
    world = virtual(1, activation=lambda p: Poisson(rate=1.0, busy="queue").process(SEED, p) if p else None)

    async def client(node):
        async with node.until("halt"):
            await node.activated()
        for _ in range(2):
            await node.activated()
            world.log("active")

    async def server(node):
        await node.sleep(first / 2)
        await node.send(1, virtual.Halt())

    world.run(server, client)
    assert [time for time, _ in world.entries] == pytest.approx([first, second], abs=1e-8)
    assert [row["index"] for row in world.events("activation")] == [0, 1]
