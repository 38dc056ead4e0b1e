"""Whoever waits for parties that never come back is told so, as soon as it is certain; others go on."""

from __future__ import annotations

import math

import pytest

from vflsim.errors import DeadlockError, DisconnectedError, IncompleteRoundError, NoProgressError
from vflsim.timing.availability import Alternating, Failure, Intervals
from vflsim.timing.delays import Constant
from vflsim.world import outages

INTERRUPTED = pytest.mark.parametrize("interrupted", ["lost", "resumed"])


def fails(at: float, interrupted: str = "lost") -> Failure:
    return Failure(at=at, repair=None, interrupted=interrupted)


def toggles(up: float, down: float, interrupted: str = "lost") -> Alternating:
    return Alternating(up=Constant(value=up), down=Constant(value=down), interrupted=interrupted)


@pytest.fixture
def made(virtual):
    """A world of three clients that send a ball at 4 s, with a server that waits as told."""

    def run(availability, wait, **how):
        world = virtual(3, availability=availability)

        async def server(node):
            world.log([message.sender for message in await wait(node)])
            world.world.finish("enough")

        async def client(node):
            await node.sleep(max(0.0, 4 - node.now))
            await node.send("server", virtual.ball(round=7))
            await node.recv("never")

        return world.run(server, client, client, client, **how)

    return run


def everybody(node):
    return node.gather("ball", senders=node.clients, round=7)


@INTERRUPTED
def test_a_wait_for_everybody_ends_when_one_is_down_for_good(made, interrupted) -> None:
    with pytest.raises(IncompleteRoundError) as told:
        made({2: fails(1.5, interrupted)}, everybody)
    assert str(told.value).splitlines()[0] == (
        "server at 1.5 s: round 0 cannot be completed: needs 3 × 'ball' from as many of 3 clients, 0 here, 2 can still "
        "come; client 2 went down for good at 1.5 s"
    )


@INTERRUPTED
def test_even_while_others_go_down_and_up_for_ever(made, interrupted) -> None:
    others = {1: toggles(0.1, 0.1, interrupted), 3: toggles(0.3, 0.2, "lost")}
    with pytest.raises(IncompleteRoundError, match=r"at 60 s(.|\n)*client 2 went down for good at 60 s"):
        made(
            {2: Intervals(down=((1, 3.9), (60, math.inf)), interrupted="lost"), **others},
            lambda node: node.gather("ball", senders=node.clients, round=8),
        )


@INTERRUPTED
def test_a_wait_that_begins_later_ends_at_once(made, interrupted) -> None:
    async def later(node):
        await node.sleep(3)
        return await everybody(node)

    with pytest.raises(IncompleteRoundError, match=r"server at 3 s(.|\n)*client 1 went down for good at 2 s"):
        made({1: fails(2, interrupted)}, later)


def test_who_has_sent_before_is_not_missed(made) -> None:
    made({2: fails(4)}, everybody).happened((4, [1, 2, 3]))
    pauses = Intervals(down=((3, 6),), interrupted="resumed")
    made({1: pauses, 2: fails(5)}, everybody).happened((7, [2, 3, 1]))


def test_a_count_ends_when_too_few_are_left(made) -> None:
    with pytest.raises(IncompleteRoundError) as told:
        made({1: fails(5), 2: fails(2), 3: fails(3)}, lambda node: node.gather("ball", count=2, senders=node.clients))
    assert "needs 2 × 'ball' from as many of 3 clients, 0 here, 1 can still come" in str(told.value)
    assert "client 2 went down for good at 2 s, client 3 went down for good at 3 s" in str(told.value)
    assert str(told.value).startswith("server at 3 s")


def test_a_count_goes_on_with_those_who_are_left(made) -> None:
    made({2: fails(2)}, lambda node: node.gather("ball", count=2, senders=node.clients)).happened((4, [1, 3]))


def test_what_one_who_is_gone_has_left_behind_counts(made) -> None:
    async def twice(node):
        await node.recv("ball", sender=1)
        await node.sleep(2)
        return await node.gather("ball", count=2, senders=[2, 3])

    made({2: fails(5), 3: fails(5)}, twice).happened((6, [2, 3]))


def test_any_message_at_all_is_hopeless_when_all_are_gone(made) -> None:
    with pytest.raises(IncompleteRoundError, match="needs 1 × 'ball', 0 here, 0 can still come"):
        made({1: fails(1), 2: fails(2), 3: fails(3)}, lambda node: node.gather("ball", count=1))


def test_several_messages_of_one_sender_are_waited_for_while_there_is_one(made) -> None:
    with pytest.raises(IncompleteRoundError, match=r"at 9 s(.|\n)*needs 4 × 'ball', 3 here, 0 can still come"):
        made({1: fails(5), 2: fails(9), 3: fails(6)}, lambda node: node.gather("ball", count=4))


def test_whoever_has_a_timeout_is_left_alone(made) -> None:
    wait = lambda node: node.gather("ball", senders=node.clients, timeout=6)  # noqa: E731
    made({2: fails(2)}, wait).happened((6, [1, 3]))


def test_waiting_for_one_who_is_gone_to_come_back(made) -> None:
    async def wait(node):
        await node.sleep(3)
        await node.back(2)

    with pytest.raises(IncompleteRoundError, match="round 0 cannot be completed: needs client 2; client 2 went down"):
        made({2: fails(2)}, wait)


def test_a_receive_from_one_who_goes_for_good_ends_even_if_it_only_paused_before(made) -> None:
    async def wait(node):
        return [await node.recv("ball", sender=2, round=8)]

    with pytest.raises(DisconnectedError, match="server at 5 s: client 2 went down before it sent 'ball'"):
        made({2: Intervals(down=((1, 2), (5, math.inf)), interrupted="resumed")}, wait)


def test_a_client_that_waits_for_another_is_told_too(virtual) -> None:
    world = virtual(2, availability={1: fails(2)})

    async def client(node):
        if node.party == 2:
            await node.gather("ball", senders=[1])
        await node.recv("never")

    with pytest.raises(IncompleteRoundError, match="client-2 at 2 s"):
        world.run(virtual.idle, client, client)


def test_a_client_that_waits_for_anything_may_still_hear_from_the_server(virtual) -> None:
    world = virtual(2, availability={1: fails(2)})

    async def server(node):
        await node.sleep(3)
        await node.send(2, virtual.ball())

    async def client(node):
        await node.recv("ball")
        world.log("received")
        world.world.finish("enough")

    world.run(server, client, client).happened((3, "received"))


def test_pauses_do_not_keep_a_deadlock_alive(virtual) -> None:
    world = virtual(1, availability={1: toggles(1, 1, "resumed")})

    async def waits(node):
        await node.recv("never")

    with pytest.raises(DeadlockError, match="server, client-1 wait for 'never'"):
        world.run(waits, waits)
    assert world.world.events < 20


def test_crashes_without_end_and_without_a_step_are_an_error_that_says_who_waits_for_what(virtual, monkeypatch) -> None:
    monkeypatch.setattr(outages, "CRASHES_WITHOUT_A_STEP", 50)
    world = virtual(2, compute=virtual.constant(2.0), availability={1: toggles(1, 1)})

    async def server(node):
        await node.gather("ball", senders=[1, 2], round=3)

    async def client(node):
        await node.compute(virtual.work(party=node.party))
        await node.send("server", virtual.ball(round=3))
        await node.recv("never")

    with pytest.raises(NoProgressError) as told:
        world.run(server, client, client)
    assert "client 1 has gone down 51 times, and round 0 is still not complete" in str(told.value)
    assert "server waits for 'ball' of round 3 from client 1" in str(told.value)
    assert world.world.now() == 101


def test_crashes_between_which_steps_are_made_may_go_on_for_ever(virtual, monkeypatch) -> None:
    monkeypatch.setattr(outages, "CRASHES_WITHOUT_A_STEP", 5)
    world = virtual(1, availability={1: toggles(1, 1)})

    async def server(node):
        for _ in range(20):
            await node.sleep(8)  # four outages
            world.recorder.rounds += 1

    async def client(node):
        await node.recv("never")

    world.run(server, client, stop_at=150.0)
    assert len(world.events("outage")) == 75


def test_no_more_activations_are_explained(virtual) -> None:
    from vflsim.timing.activation import Schedule

    world = virtual(1, activation=lambda party: Schedule(times=(1, 2)).process(0, party))

    async def client(node):
        while True:
            await node.activated()

    async def server(node):
        await node.recv("ball")

    with pytest.raises(DeadlockError, match="client-1 waits for its next activation, but there are no more"):
        world.run(server, client)
    assert world.world.now() == 2
