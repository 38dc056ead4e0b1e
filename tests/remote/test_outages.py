"""Outages in the processes of a live run: the same ones in each, and a client begins anew when the server says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from vflsim.errors import VflsimError
from vflsim.learning.execution.operations import ImmediateExecutor, Operation
from vflsim.remote.control import CameUp
from vflsim.remote.outages import ClientOutages, ServerOutages
from vflsim.remote.party import LocalBox
from vflsim.remote.world import LiveWorld, precise_loop
from vflsim.timing.availability import Intervals
from vflsim.world.messages import EvaluationRequest, Gradient
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualWorld


def down(*times: float, interrupted: Any = "lost") -> Intervals:
    return Intervals(down=tuple(zip(times[::2], times[1::2], strict=True)), interrupted=interrupted)


class Both:
    """The server's and client 1's view of the outages of client 1, in one virtual world.

    The server's word takes ``trip`` seconds, and the client's timers are ``late``; ``deaf``: new processes of the
    client hear it, which are not here.
    """

    def __init__(self, availability: Intervals, trip: float = 0.01, late: float = 0.0, deaf: bool = False) -> None:
        self.world = VirtualWorld(ImmediateExecutor())
        self.log: list[tuple[Any, ...]] = []
        self.words: list[CameUp] = []
        self.server_recorder, self.client_recorder = Recorder(), Recorder()
        said = {1: availability}
        self.client = ClientOutages(said, 7, 1, lambda: self._note("crash"))
        self.server = ServerOutages(said, 7, self._tell, lambda: self._note("lost"))
        self.trip, self.late, self.deaf = trip, late, deaf

    def play(self, until: float) -> None:
        server, client = (self._process(each) for each in (self.server_recorder, self.client_recorder))
        after = self.world.after
        slow = SimpleNamespace(after=lambda delay, *rest, **more: after(delay + self.late, *rest, **more))
        slow.now, slow.fail = self.world.now, self.world.fail
        client.world = slow

        async def work() -> None:
            await self.world.pause(until, "the end")
            self.world.finish("done")

        def begin() -> Any:
            self._note("begins", self.client_recorder.current_round)
            return self.world.spawn(self._idle(), "client-1", 1)

        self.world.spawn(work(), "server", 0)
        self.server.begin(server, {})
        self.client.begin(client, {1: begin})
        self.world.run()
        for each in (self.server, self.client):
            each.close()
        self.world.close()

    async def _idle(self) -> None:
        await self.world.signal("nothing")

    def _process(self, recorder: Recorder) -> Any:
        def note(what: str) -> Callable[[int], None]:
            return lambda party: None

        transport = SimpleNamespace(shut=note("shut"), lose=note("lose"), open=note("open"))
        boxes = {party: SimpleNamespace(clear=lambda: None) for party in (0, 1)}
        return SimpleNamespace(world=self.world, transport=transport, recorder=recorder, mailboxes=boxes)

    def _tell(self, client: int, word: CameUp) -> None:
        self.words.append(word)
        self.server_recorder.skip()  # the server goes on while the word is on its way
        self.world.after(self.trip, lambda: None if self.deaf else self.client.called_back(word))

    def _note(self, *what: Any) -> None:
        self.log.append((round(self.world.now(), 6), *what))


def test_a_client_begins_anew_when_the_server_says_so_in_the_round_that_it_names() -> None:
    both = Both(down(1, 2, 4, 5))
    both.play(until=6)
    assert both.words == [CameUp(number=1, round=0, at=2.0), CameUp(number=2, round=1, at=5.0)]
    assert [each for each in both.log if each[1] != "lost"] == [
        (0, "begins", 0), (1, "crash"), (2.01, "begins", 0), (4, "crash"), (5.01, "begins", 1),
    ]  # fmt: skip
    assert both.server.crashes == {1: 2}


def test_the_server_alone_records_outages() -> None:
    both = Both(down(1, 2, 4, 9))
    both.play(until=6)
    rows = both.server_recorder.events.table
    assert [(row["start_s"], row["end_s"], row["index"]) for row in rows] == [(1, 2, 0), (4, 6, 1)]
    assert len(both.client_recorder.events) == 0


@pytest.mark.parametrize("late", [0.5, 1.5, 5.0])
def test_a_client_whose_machine_is_late_crashes_once_an_outage_and_at_the_latest_with_the_word(late: float) -> None:
    both = Both(down(1, 2, 12, 13), late=late)
    both.play(until=20)
    what = [each[1:] for each in both.log if each[1] != "lost"]
    assert what == [("begins", 0), ("crash",), ("begins", 0), ("crash",), ("begins", 1)]
    crashes = [when for when, *what in both.log if what == ["crash"]]
    assert crashes == [min(1 + late, 2.01), min(12 + late, 13.01)]


def test_a_client_that_is_away_at_the_start_begins_with_the_first_word() -> None:
    both = Both(down(0, 2))
    both.play(until=3)
    assert [each for each in both.log if each[1] != "lost"] == [(0, "crash"), (2.01, "begins", 0)]


def test_a_client_that_pauses_needs_no_word() -> None:
    both = Both(down(1, 2, interrupted="resumed"))
    both.play(until=3)
    assert both.log == [(0, "begins", 0)]
    assert both.words == []
    assert both.client.next_crash() == float("inf")


def test_the_next_crash_is_known_before() -> None:
    both, seen = Both(down(1, 2, 4, 5)), []
    for at in (0.5, 3.0):
        both.world.after(at, lambda: seen.append(both.client.next_crash()))
    both.play(until=6)
    assert seen == [1, 4]
    assert both.client.next_crash() == float("inf"), "the run is over"


def test_a_client_whose_process_is_away_is_down_until_it_is_back_and_the_scenario_has_it_up() -> None:
    both = Both(down(4, 6, 9, 10), deaf=True)
    for at, call in (
        (1.0, both.server.away),
        (2.0, both.server.here),
        (5.0, both.server.away),
        (7.5, both.server.here),
    ):
        both.world.after(at, partial(call, 1))
    both.play(until=11)
    rows = both.server_recorder.events.table
    assert [(row["start_s"], row["end_s"], row["index"]) for row in rows] == [(1, 2, 0), (4, 7.5, 1), (9, 10, 2)]
    assert [(word.number, word.at) for word in both.words] == [(1, 2.0), (2, 7.5), (3, 10.0)]


def test_a_client_whose_process_has_gone_before_the_start_is_down_at_the_start() -> None:
    both = Both(down(4, 6), deaf=True)
    both.server.away(1)
    both.world.after(2.0, lambda: both.server.here(1))
    both.play(until=3)
    rows = both.server_recorder.events.table
    assert [(row["start_s"], row["end_s"]) for row in rows] == [(0, 2)]
    assert both.server.crashes == {1: 1}


def test_a_client_that_goes_down_for_good_while_its_process_is_away_is_gone() -> None:
    both = Both(down(4, float("inf")))
    both.world.after(1.0, lambda: both.server.away(1))
    both.world.after(5.0, lambda: both.server.here(1))
    both.play(until=6)
    assert both.server.gone == {1: 4.0}
    assert both.words == []


def test_a_process_that_takes_the_place_of_another_begins_with_the_word_even_if_it_comes_first() -> None:
    both = Both(down(4, 6))
    both.client = ClientOutages({1: down(4, 6)}, 7, 1, lambda: both._note("crash"), again=True)
    both.client.called_back(CameUp(number=3, round=9, at=0.0))
    both.play(until=3)
    assert both.log == [(0, "begins", 9)]


@pytest.mark.parametrize(
    "word", [CameUp(number=1, round=0, at=1.5), CameUp(number=1, round=0, at=100.0), CameUp(number=0, round=0, at=2.0)]
)
def test_the_end_of_an_outage_that_the_scenario_does_not_have_is_refused(word: CameUp) -> None:
    both = Both(down(1, 2, 99, 100), deaf=True)
    both.world.after(3.0, lambda: both.client.called_back(word))
    with pytest.raises(VflsimError, match=f"the server ends outage {word.number} of client-1 at {word.at:g} s"):
        both.play(until=4)


def test_an_outage_ends_once() -> None:
    both = Both(down(1, 2))
    both.world.after(3.0, lambda: both.client.called_back(both.words[0]))
    with pytest.raises(VflsimError, match="the server ends outage 1 of client-1 at 2 s"):
        both.play(until=4)


def test_a_clock_can_begin_in_the_middle_of_a_run() -> None:
    loop = precise_loop()
    world, seen = LiveWorld(loop), []

    def begin() -> None:
        seen.append((world.now(), world.instant))
        world.after(0.01, lambda: (seen.append((world.now(), world.instant)), world.finish("done")))

    world.begin_at(loop.time() - 5.0, begin, since=5.0)
    assert world.run() == "done"
    assert seen == [(5.0, 5.0), (5.01, 5.01)]
    assert world.slipped_s == 0
    world.close()
    loop.close()


def test_messages_of_evaluations_stay_in_the_mailbox_of_a_party_that_crashes() -> None:
    world: Any = VirtualWorld(ImmediateExecutor())
    box = LocalBox(world)
    asked, read, gradient = EvaluationRequest(round=3), EvaluationRequest(round=2), Gradient(round=1)
    box.deliver_free(read)
    assert box.take("evaluate") == [read]
    box.deliver_free(asked)
    box.deliver(gradient)
    for _ in range(2):
        box.clear()
    assert [message for message, _ in box.unread()] == [asked]


@pytest.mark.parametrize(("crash_at", "waits"), [(0.1, 0.5), (2.0, 0.2)])
def test_a_computation_that_a_crash_will_end_does_not_begin(crash_at: float, waits: float) -> None:
    loop = precise_loop()
    world = LiveWorld(loop)
    world.crash_at = lambda: crash_at
    operation: Any = Operation("embed", 1, lambda: None, None)
    operation.at = 0, 0.5
    world._took["embed"] = deque([0.3])
    assert world.until_work(operation, 0.5) == pytest.approx(waits)
    world.close()
    loop.close()


def test_others_take_a_client_down_and_up_as_its_process_goes_and_comes() -> None:
    """The scenario has it down from 4 s to 5 s; its process is away from 1 s to 2 s, and from 3 s to 6 s."""
    world, recorder = VirtualWorld(ImmediateExecutor()), Recorder()
    other = ClientOutages({1: down(4.0, 5.0)}, 7, 2, lambda: None)
    transport = SimpleNamespace(shut=lambda _: None, lose=lambda _: None, open=lambda _: None)
    boxes = {party: SimpleNamespace(clear=lambda: None) for party in (0, 1, 2)}
    run: Any = SimpleNamespace(world=world, transport=transport, recorder=recorder, mailboxes=boxes)
    seen: dict[float, bool] = {}

    async def story() -> None:
        other.away(1)  # before the run begins here
        other.here(1)
        other.begin(run, {1: lambda: None})
        words = {1.0: other.away, 2.0: other.here, 3.0: other.away, 6.0: other.here}
        for half in range(1, 14):
            await world.pause(0.5, "the next look")
            if (word := words.get(half / 2)) is not None:
                word(1)
            seen[half / 2] = other.crashed(1)
        world.finish("done")

    world.spawn(story(), "client-2", 2)
    world.run()
    world.close()
    assert [at for at, away in seen.items() if away] == [1.0, 1.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5]
