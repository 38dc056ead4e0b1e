"""Coroutines under way: how they start, fail, and end."""

from __future__ import annotations

import asyncio
import contextvars
from types import coroutine as generator_coroutine

import pytest
import simpy

from vflsim.errors import (
    DeadlockError,
    ForeignAwaitError,
    NonFiniteError,
    NoProgressError,
    ProtocolError,
    RunError,
    VflsimError,
)
from vflsim.world import virtual as virtual_module


@generator_coroutine
def yielding(what):
    yield what


async def _never(node):
    await node.recv("ball")


def test_sleeping_parties_take_turns(tiny) -> None:
    world = tiny(2)

    def every(seconds):
        async def main(node):
            for k in range(2):
                await node.sleep(seconds)
                world.log(node.party, k)

        return main

    world.run(every(1), every(2.5), every(4)).happened(
        (1, 0, 0), (2, 0, 1), (2.5, 1, 0), (4, 2, 0), (5, 1, 1), (8, 2, 1)
    )
    assert world.reason == "all have returned"


@pytest.mark.parametrize(
    "foreign",
    [lambda: asyncio.sleep(0.01), lambda: asyncio.sleep(0), lambda: yielding("a string")],
    ids=["asyncio.sleep", "asyncio.sleep(0)", "yield"],
)
def test_a_foreign_await_is_an_error_that_names_the_party(tiny, foreign) -> None:
    world = tiny(1)

    async def client(node):
        await node.sleep(1)
        await foreign()

    with pytest.raises(ForeignAwaitError, match=r"client-1 at 1\S* s: awaited .*\n.*node.sleep") as caught:
        world.run(tiny.idle, client)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ProtocolError)


def test_an_event_of_simpy_cannot_be_awaited_either(tiny) -> None:
    world = tiny(1)

    async def client(node):
        await simpy.Environment().timeout(1)

    with pytest.raises(RunError, match="client-1 at 0") as caught:
        world.run(tiny.idle, client)
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_foreign_await_is_thrown_in_where_it_stands(tiny) -> None:
    world = tiny(1)

    async def client(node):
        try:
            await yielding(object())
        except TypeError as error:
            world.log("caught", "builtins.object" in str(error))
        await node.sleep(1)
        world.log("went on")

    world.run(tiny.idle, client).happened((0, "caught", True), (1, "went on"))


def test_any_exception_ends_the_run_and_stays_the_cause(tiny) -> None:
    world = tiny(2)

    async def client(node):
        await node.sleep(2)
        raise KeyError("weights")

    with pytest.raises(RunError, match=r"client-1 at 2\S* s: KeyError: 'weights'") as caught:
        world.run(_never, client, _never)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__cause__.__traceback__ is not None


def test_an_error_of_ours_keeps_its_type_cause_and_words_and_gets_a_place(tiny) -> None:
    class TooMuchError(NonFiniteError):
        def __init__(self, number):  # cannot be rebuilt from args as others can
            super().__init__(f"{number} is too much", allowed="less")
            self.number = number

    world = tiny(1)

    async def client(node):
        await node.sleep(1)
        try:
            raise ZeroDivisionError("deep down")
        except ZeroDivisionError as error:
            raise TooMuchError(7) from error

    with pytest.raises(TooMuchError, match=r"client-1 at 1\S* s: 7 is too much\n  allowed: less") as caught:
        world.run(tiny.idle, client)
    assert caught.value.number == 7
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.args[1] == caught.value.where


def test_a_place_that_is_known_already_is_kept(tiny) -> None:
    world = tiny(1)

    async def client(node):
        raise VflsimError("broken", "client-9, embed, round 3 at 2 s")

    with pytest.raises(VflsimError, match=r"^client-9, embed, round 3 at 2 s: broken$"):
        world.run(tiny.idle, client)


def test_what_runs_beside_is_supervised(tiny) -> None:
    world = tiny(1)

    async def beside(node):
        await node.sleep(1)
        world.log("beside")
        raise ValueError("beside the main line")

    async def client(node):
        node.start(beside(node))
        await node.sleep(5)
        world.log("never")

    with pytest.raises(RunError, match=r"client-1 \(beside\) at 1\S* s: ValueError: beside the main line"):
        world.run(tiny.idle, client)
    world.happened((1, "beside"))


def test_what_runs_beside_goes_on_when_the_main_line_returns(tiny) -> None:
    world = tiny(1)

    async def beside(node):
        await node.sleep(2)
        world.log("beside")

    async def client(node):
        node.start(beside(node))
        await node.sleep(1)
        world.log("main")

    async def server(node):
        await node.sleep(3)

    world.run(server, client).happened((1, "main"), (2, "beside"))


def test_context_variables_do_not_leak_between_tasks(tiny) -> None:
    colour = contextvars.ContextVar("colour", default="none")
    world = tiny(2)

    async def beside(node):
        world.log("beside", colour.get())
        colour.set("of the child")
        await node.sleep(2)

    async def client(node):
        colour.set(f"of {node.party}")
        await node.sleep(node.party)
        world.log(node.party, colour.get())
        if node.party == 1:
            node.start(beside(node))
        await node.sleep(2)
        world.log(node.party, colour.get())

    async def server(node):
        await node.sleep(9)
        world.log(0, colour.get())

    world.run(server, client, client)
    assert dict(what for _, what in world.entries) == {1: "of 1", 2: "of 2", 0: "none", "beside": "of 1"}
    assert colour.get() == "none"


def test_the_end_closes_what_is_pending_and_lets_it_clean_up(tiny) -> None:
    world = tiny(2)

    async def server(node):
        await node.sleep(1)
        node.start(_never(node))  # begun in the very instant of the end
        world.log("end")

    async def client(node):
        try:
            await node.recv("ball")
        except Exception:
            world.log("an abandoned task must not see an exception of the ordinary kind")
        finally:
            world.log("closed", node.party)

    async def stubborn(node):
        try:
            await node.recv("ball")
        finally:
            await node.sleep(1)  # cut short
            world.log("never")

    async def main(node):
        node.start(client(node))
        node.start(stubborn(node))

    world.run(server, main, main)
    assert [what for _, what in world.entries] == [("end",), ("closed", 1), ("closed", 2)]


def test_a_clean_up_that_fails_is_no_secret(tiny) -> None:
    world = tiny(1)

    async def beside(node):
        try:
            await node.recv("ball")
        finally:
            raise ValueError("cannot clean up")

    async def client(node):
        node.start(beside(node))
        await node.sleep(1)

    with pytest.raises(RunError, match="cannot clean up"):
        world.run(tiny.idle, client)


def test_a_deadlock_says_who_waits_for_what(tiny) -> None:
    world = tiny(3)

    async def server(node):
        await node.gather("ball", senders=node.clients, round=4)

    async def client(node):
        await node.sleep(node.party)
        if node.party == 1:
            await node.send("server", tiny.ball(round=4))
        elif node.party == 2:
            await node.gather("ball", count=3)
        else:
            await node.recv("halt", round=2)

    with pytest.raises(DeadlockError) as caught:
        world.run(server, client, client, client, stop_at=1000.0)
    text = str(caught.value)
    assert "server waits for 'ball' of round 4 from client 2, client 3" in text
    assert "client-2 waits for 3 × 'ball' (0 here)" in text
    assert "client-3 waits for 'halt' of round 2" in text
    assert "client-1" not in text
    assert world.world.now() < 1000


def test_a_world_in_which_everybody_has_returned_ends_as_a_deadlock(tiny) -> None:
    with pytest.raises(DeadlockError, match="every party has returned"):
        tiny(1).run(tiny.idle, tiny.idle, until_all_end=False)


def test_an_observer_neither_keeps_a_deadlocked_run_alive_nor_ends_with_the_run(tiny) -> None:
    world = tiny(1)

    async def watch(node):
        await node.recv("ball")
        world.log("the observer was still there")

    world.world.spawn(watch(world.nodes[1]), "observer", 1, observer=True)

    async def server(node):
        await node.sleep(1)

    async def last():
        await world.server.free().send(1, tiny.ball())
        await world.server.free().recv("never", timeout=0)

    world.world.spawn(server(world.server), "server", 0)
    world.world.after(1.5, lambda: world.world.finish("now"))
    assert world.world.run() == "now"
    with pytest.raises(RunError, match="TimeoutError"):
        world.world.conclude(last())
    assert [what for _, what in world.entries] == [("the observer was still there",)]


def test_a_conclusion_that_can_never_come_is_a_deadlock_not_a_hang(tiny) -> None:
    world = tiny(1)
    world.world.after(1, lambda: world.world.finish("now"))
    world.world.run()
    with pytest.raises(DeadlockError, match="observer waits for 'ball'"):
        world.world.conclude(world.server.recv("ball"))


def test_the_first_reason_to_finish_counts(tiny) -> None:
    world = tiny(1)

    async def server(node):
        await node.sleep(1)
        world.world.finish("first")
        world.world.finish("second")

    assert world.run(server).reason == "first"
    assert world.world.over


def test_a_verb_outside_a_task_is_an_error(tiny) -> None:
    world = tiny(1)
    with pytest.raises(RunError, match="outside a task"):
        world.world.current()


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
@pytest.mark.parametrize("verb", ["sleep", "recv", "gather"])
def test_no_verb_takes_a_time_that_is_none(tiny, verb, seconds) -> None:
    verbs = {
        "sleep": lambda node: node.sleep(seconds),
        "recv": lambda node: node.recv("ball", timeout=seconds),
        "gather": lambda node: node.gather("ball", count=1, timeout=seconds),
    }
    with pytest.raises(ProtocolError, match=rf"client-1 at 0\S* s: .*{seconds} s\n.*seconds ≥ 0"):
        tiny(1).run(tiny.idle, verbs[verb])


def test_events_without_the_clock_moving_are_an_error(virtual, monkeypatch) -> None:
    monkeypatch.setattr(virtual_module, "STANDSTILL", 200)
    world = virtual(1)

    async def server(node):
        while True:
            await node.recv("ball")
            await node.send(1, virtual.ball())

    async def client(node):
        await node.sleep(3)
        while True:
            await node.send("server", virtual.ball())
            await node.recv("ball")

    with pytest.raises(NoProgressError, match="at 3 s: 200 events without the clock moving"):
        world.run(server, client)


def test_verbs_that_take_no_time_and_make_no_events_are_an_error_too(virtual, monkeypatch) -> None:
    monkeypatch.setattr(virtual_module, "STANDSTILL", 200)
    world = virtual(1, compute=virtual.constant(0))

    async def client(node):
        while True:
            await node.activated()
            await node.compute(virtual.work())

    with pytest.raises(NoProgressError, match="client-1 at 0 s: 200 events without the clock moving"):
        world.run(virtual.idle, client)


def test_many_events_are_fine_as_long_as_the_clock_moves(virtual, monkeypatch) -> None:
    monkeypatch.setattr(virtual_module, "STANDSTILL", 20)
    world = virtual(1)

    async def client(node):
        for _ in range(200):
            await node.sleep(1e-9)

    world.run(virtual.idle, client)
    assert world.world.events > 200


def test_the_same_inputs_give_the_same_order_of_events(virtual) -> None:
    def log() -> list:
        world = virtual(3)

        async def server(node):
            for _ in range(6):
                world.log(*[m.sender for m in await node.gather("ball", count=2)])

        async def client(node):
            for k in range(4):
                await node.sleep((node.party * k) % 3)
                await node.send("server", virtual.ball())

        return world.run(server, client, client, client).entries

    assert log() == log()
