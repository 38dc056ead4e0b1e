"""Crashes: what is in flight is lost, what was done stays done, and the party starts afresh when it is up again."""

from __future__ import annotations

from typing import Any

import pytest

from vflsim.errors import DisconnectedError
from vflsim.timing.availability import Failure, Intervals
from vflsim.world.messages import Message


def down(*times: float) -> Intervals:
    """Down from the first time to the second, from the third to the fourth, …"""
    return Intervals(down=tuple(zip(times[::2], times[1::2], strict=True)), interrupted="lost")


def spans(world: Any, kind: str) -> list[tuple[float, float, int, str]]:
    """(start, end, index, outcome) of the events of a kind, exactly; in real time the last two alone."""
    events = sorted(world.events(kind), key=lambda e: (e["start"], e["end"]))
    return [(*(() if world.real else (e["start"], e["end"])), e["index"], e["outcome"]) for e in events]


def exactly(world: Any, *expected: tuple[float, float, int, str]) -> list[tuple]:
    return [span[2:] if world.real else span for span in expected]


async def nothing(node) -> None:
    """A server that waits for ever."""
    await node.recv("never")


def test_a_computation_under_way_is_lost_and_the_next_begins_after_the_return(tiny) -> None:
    world = tiny(1, compute=tiny.constant(3.0), availability={1: down(1, 2)})

    async def client(node):
        world.log("begins")
        await node.compute(tiny.work(party=1))
        world.log("done")
        await node.send("server", tiny.ball())

    async def server(node):
        await node.recv("ball")

    world.run(server, client).happened((0, "begins"), (2, "begins"), (5, "done"))
    assert spans(world, "compute") == exactly(world, (0, 1, 0, "lost"), (2, 5, 1, "done"))
    assert spans(world, "outage") == exactly(world, (1, 2, 0, "done"))


def test_abandoned_operations_never_run(tiny) -> None:
    world = tiny(1, compute=tiny.constant(3.0), availability={1: down(1, 2)})
    ran = []

    async def client(node):
        await node.compute(tiny.work(party=1, run=lambda: ran.append(node.now)))

    world.run(tiny.idle, client)
    assert len(ran) == 1


def test_an_upload_delay_under_way_is_lost_and_nothing_is_sent(tiny) -> None:
    world = tiny(1, upload=tiny.constant(2.0), availability={1: down(1, 4)})

    async def client(node):
        await node.upload("server", tiny.ball(3))

    async def server(node):
        world.log((await node.recv("ball")).sent)

    world.run(server, client)
    assert spans(world, "upload") == exactly(world, (0, 1, 0, "lost"), (4, 6, 1, "done"))
    assert [e["index"] for e in world.events("transfer.ball")] == [0]


def test_transfers_under_way_are_lost_in_both_directions_with_the_bytes_that_went_out(virtual) -> None:
    slow = virtual.Link(up=8.0, down=8.0)  # a byte a second
    world = virtual(2, links={1: slow, 2: slow}, availability={1: down(2, 3)})

    async def client(node):
        if node.now == 0:
            await node.send("server", virtual.ball(5))
        await nothing(node)

    async def server(node):
        await node.send(1, virtual.Halt(round=7))
        await node.send(1, virtual.ball(5))
        await node.send(2, virtual.ball(3))
        message = await node.recv("ball")
        assert message.sender == 2
        world.log("received", message.sender)
        await node.sleep(1)

    async def other(node):
        world.log("other received", (await node.recv("ball")).arrived)
        await node.send("server", virtual.ball(1))
        await nothing(node)

    world.run(server, client, other, stop_at=6.5)
    # fifo: the server's ball to client 2 waits until the one to client 1 has left the link at 2
    world.happened((5, "other received", 5.0), (6, "received", 2))
    moved = {
        (e["party"], e["peer"]): (e["start"], e["end"], e["bytes"], e["outcome"]) for e in world.events("transfer.b")
    }
    assert moved == {
        (1, 0): (0, 2, 2, "lost"),
        (0, 1): (0, 2, 2, "lost"),
        (0, 2): (2, 5, 3, "done"),
        (2, 0): (5, 6, 1, "done"),
    }
    assert (world.recorder.bytes_up, world.recorder.bytes_down) == (3, 5)


def test_a_message_in_its_latency_is_lost(virtual) -> None:
    world = virtual(1, links={1: virtual.Link(latency=5.0)}, availability={1: down(2, 3)})

    async def client(node):
        await node.send("server", virtual.ball(1))
        await nothing(node)

    async def server(node):
        world.log((await node.recv("ball")).sent)
        await node.sleep(9)

    world.run(server, client, stop_at=9.0).happened((8, 3.0))
    assert spans(world, "latency") == [(0, 2, 0, "lost"), (3, 8, 1, "done")]


def test_a_message_to_a_party_that_is_down_is_lost_at_once(tiny) -> None:
    world = tiny(1, availability={1: down(1, 3)})

    async def server(node):
        await node.sleep(2)
        await node.send(1, tiny.ball(6))
        await node.sleep(2)
        await node.send(1, tiny.ball(7))

    async def client(node):
        message = await node.recv("ball")
        world.log(message.value.shape)

    world.run(server, client).happened((4, (7,)))
    assert [(e["bytes"], e["outcome"]) for e in world.events("transfer")] == [(0, "lost"), (7, "done")]


def test_what_waited_in_the_mailbox_is_dropped(tiny) -> None:
    world = tiny(1, availability={1: down(2, 3)})

    async def server(node):
        for k in range(2):
            await node.send(1, tiny.ball(round=k))
            await node.sleep(4)

    async def client(node):
        await node.sleep(1 if node.now < 1 else 3)
        if node.now < 1.5:
            await node.sleep(9)
        world.log([message.round for message in node.arrived("ball")])

    world.run(server, client).happened((6, [1]))


def test_the_processor_is_free_again_and_work_that_waited_for_it_is_lost(virtual) -> None:
    world = virtual(1, compute=virtual.constant(3.0), availability={1: down(1, 2)})

    async def beside(node):
        await node.compute(virtual.work("beside", party=1))

    async def client(node):
        node.start(beside(node))
        await node.compute(virtual.work("main", party=1))

    world.run(virtual.halt_at(9.0), client, stop_at=8.5)
    assert spans(world, "compute.main") == [(0, 1, 0, "lost"), (2, 5, 1, "done")]
    assert spans(world, "compute.beside") == [(5, 8, 0, "done")]


def test_what_ran_beside_is_abandoned_too_and_its_last_words_are_heard(tiny) -> None:
    world = tiny(1, availability={1: down(1, 2)})

    async def beside(node, name):
        try:
            await node.sleep(9)
        finally:
            world.log("abandoned", name)

    async def client(node):
        if node.now < 1:
            node.start(beside(node, "one"))
            node.start(beside(node, "other"))
            await beside(node, "main")
        world.log("back")

    world.run(tiny.idle, client)
    assert sorted(what for _, what in world.entries) == [
        ("abandoned", "main"),
        ("abandoned", "one"),
        ("abandoned", "other"),
        ("back",),
    ]
    assert world.entries[-1][1] == ("back",)


def test_last_words_cannot_send_anything(virtual) -> None:
    world = virtual(1, availability={1: down(1, 2)})

    async def client(node):
        try:
            await node.sleep(9)
        finally:
            await node.send("server", virtual.ball(5))

    world.run(nothing, client, stop_at=3.0)
    assert [(e["start"], e["outcome"]) for e in world.events("transfer")] == [(1, "lost"), (3, "unfinished")]


def test_a_block_that_a_message_would_end_is_forgotten(tiny) -> None:
    world = tiny(1, links={1: tiny.Link(latency=0.5)}, availability={1: down(1, 2)})

    async def client(node):
        async with node.until("halt"):
            await node.sleep(9)
        world.log("ended", node.now >= 2)
        await node.recv("halt")

    world.run(tiny.halt_at(0.7, 3.0), client).happened((3.5, "ended", True))


def test_a_client_that_is_down_at_first_begins_when_it_comes_up(tiny) -> None:
    world = tiny(2, availability={1: down(0, 2), 2: Failure(at=0, repair=1, interrupted="lost")})

    async def server(node):
        await node.send(1, tiny.ball())
        world.log([message.sender for message in await node.gather("ball", senders=[1, 2])])

    async def client(node):
        await node.send("server", tiny.ball())

    world.run(server, client, client).happened((2, [2, 1]))
    lost = [e for e in world.events("transfer") if e["party"] == 0]
    assert [(e["outcome"], e["bytes"]) for e in lost] == [("lost", 0)]
    assert spans(world, "outage") == exactly(world, (0, 1, 0, "done"), (0, 2, 0, "done"))


def test_all_at_once(tiny) -> None:
    world = tiny(3, compute=tiny.constant(2.0), availability={party: down(1, 3) for party in (1, 2, 3)})

    async def client(node):
        await node.compute(tiny.work(party=node.party))
        await node.send("server", tiny.ball())

    async def server(node):
        world.log(sorted(message.sender for message in await node.gather("ball", senders=node.clients)))

    world.run(server, client, client, client).happened((5, [1, 2, 3]))


def test_what_ends_at_the_very_instant_of_the_crash_has_ended(virtual) -> None:
    world = virtual(1, links={1: virtual.Link(up=8.0)}, availability={1: down(3, 4)})

    async def client(node):
        if node.now == 0:
            await node.compute(virtual.work(party=1))  # 1 s
            await node.send("server", virtual.ball(2))  # 2 s
            await node.sleep(2)
            world.log("slept")
            await node.sleep(0)
            world.log("and went on")
            await node.sleep(1)
            world.log("never")

    async def server(node):
        world.log((await node.recv("ball")).arrived)
        await node.sleep(3)

    world.run(server, client)
    assert sorted(world.entries, key=str) == [(3.0, ("and went on",)), (3.0, ("slept",)), (3.0, (3.0,))]


def test_several_outages_and_one_that_the_end_of_the_run_cuts_short(virtual) -> None:
    world = virtual(1, availability={1: down(1, 2, 4, 5, 5, 6, 8, 20)})

    async def client(node):
        world.log("up")
        await node.recv("never")

    world.run(nothing, client, stop_at=9.0).happened((0, "up"), (2, "up"), (6, "up"))
    assert spans(world, "outage") == [(1, 2, 0, "done"), (4, 6, 1, "done"), (8, 9, 2, "unfinished")]


def test_draws_and_batches_go_on_where_they_were(virtual) -> None:
    world = virtual(1, compute=virtual.constant(2.0), availability={1: down(3, 4)})

    async def client(node):
        while True:
            batch = node.next_batch()
            await node.compute(virtual.work(party=1))
            world.log(batch.index)

    world.run(nothing, client, stop_at=9.0).happened((2, 0), (6, 2), (8, 3))
    assert [e["index"] for e in world.events("compute")] == [0, 1, 2, 3, 4]


# --- those who wait for it ------------------------------------------------------------------------------------------


async def ask(node, world, ball) -> Message:
    """Ask client 1 until it answers."""
    while True:
        await node.back(1)
        await node.send(1, ball)
        try:
            return await node.recv("halt", sender=1)
        except DisconnectedError as error:
            world.log(str(error))


def test_a_receive_from_one_party_ends_when_it_goes_down_and_can_be_repeated_when_it_is_back(tiny) -> None:
    world = tiny(2, compute=tiny.constant(2.0), availability={1: down(1, 3, 4, 6)})

    async def server(node):
        world.log(type(await ask(node, world, tiny.ball())).__name__)

    async def client(node):
        await node.recv("ball")
        await node.compute(tiny.work(party=1))
        await node.send("server", tiny.Halt())

    sentence = "client 1 went down before it sent 'halt'"
    world.run(server, client, tiny.idle).happened((1, sentence), (4, sentence), (8, "Halt"))
    assert len(world.events("transfer.ball")) == 3


def test_a_receive_from_a_party_that_is_down_already_ends_at_once(tiny) -> None:
    world = tiny(1, availability={1: down(1, 3)})

    async def server(node):
        await node.sleep(2)
        with pytest.raises(DisconnectedError):
            await node.recv("halt", sender=1)
        world.log("told")

    world.run(server, tiny.idle).happened((2, "told"))


def test_a_message_of_the_instant_of_the_crash_is_received(virtual) -> None:
    world = virtual(1, availability={1: down(1, 3)})

    async def server(node):
        world.log((await node.recv("ball", sender=1)).sender)

    async def client(node):
        await node.sleep(1)
        await node.send("server", virtual.ball())

    world.run(server, client).happened((1, 1))


def test_back_returns_at_once_while_the_party_is_up(tiny) -> None:
    world = tiny(2, availability={1: down(5, 6)})

    async def server(node):
        await node.back(1)
        await node.back(2)
        world.log("both up")

    world.run(server, tiny.idle, tiny.idle).happened((0, "both up"))


def test_a_message_of_a_former_life_that_comes_late_is_lost_with_its_draw(virtual) -> None:
    link = virtual.Link(latency=virtual.constant(0.5), up=8.0)
    world = virtual(1, links={1: link}, availability={1: down(1, 2)})
    late = virtual.ball(3)
    late.sender, late.receiver, late.sent = 1, 0, 0.9

    async def client(node):
        if not node.returned:
            await node.sleep(5)
        await node.send("server", virtual.ball(1))

    async def server(node):
        await node.sleep(1.5)
        node.shared.transport.send_lost(late, 3)
        assert (await node.recv("ball")).sent == 2.0

    world.run(server, client)
    balls = [(e["index"], e["outcome"], e["bytes"]) for e in world.events("transfer.ball")]
    assert balls == [(0, "lost", 0), (1, "done", 1)]
    assert [(e["index"], e["outcome"]) for e in world.events("latency")] == [(0, "lost"), (1, "done")]
