"""The third world beside virtual and real time: nothing takes time, no value is known, and every verb is noted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Coroutine, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from typing_extensions import override

from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.party import PartyLearner
from vflsim.streams import SERVER, party_name
from vflsim.tracing.notes import AwaitedActivation, Fork, Note, Notes, Reception, Row, Sending, Wait, Work
from vflsim.world.kernel import Moment, all_of
from vflsim.world.messages import Message
from vflsim.world.node import Node
from vflsim.world.party import Party, checked_seconds, no_operation
from vflsim.world.record import Recorder
from vflsim.world.task import Task

_VFLSIM = str(Path(__file__).parents[1])
_DECIDING = ("eq", "ne", "lt", "le", "gt", "ge", "mod", "rmod", "floordiv", "divmod", "and", "rand", "bool")
_REACHING = ("add", "radd", "sub", "rsub", "mul", "rmul")


class RoundNumber(int):
    """A number that calls ``decides`` with the line of code from outside that compares it, or takes a remainder of it.

    A few traced rounds do not show what happens in the tenth. Sums and products are such numbers again.

    Example::

        lines = []
        RoundNumber.of(3, lines.append) % 10  # 3, and ``lines`` has this line
    """

    decides: Callable[[str], object]

    @classmethod
    def of(cls, number: int, decides: Callable[[str], object]) -> RoundNumber:
        """Make a number."""
        round_number = cls(number)
        round_number.decides = decides
        return round_number

    __hash__ = int.__hash__


def _deciding(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def operator(self: RoundNumber, *others: Any) -> Any:
        frame = sys._getframe(1)
        if not frame.f_code.co_filename.startswith(_VFLSIM):
            self.decides(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        return plain(self, *others)

    return operator


def _reaching(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def operator(self: RoundNumber, other: Any) -> Any:
        value = plain(self, other)
        return value if value is NotImplemented else RoundNumber.of(value, self.decides)

    return operator


for _name in _DECIDING:
    setattr(RoundNumber, f"__{_name}__", _deciding(f"__{_name}__"))
for _name in _REACHING:
    setattr(RoundNumber, f"__{_name}__", _reaching(f"__{_name}__"))


# --- recording node ---------------------------------------------------------------------------------------------------


T = TypeVar("T")
_PATIENCE = 1000.0
"""Seconds after which a wait that need not be for all goes on with what has come. Everything else has come by then."""
_STEP = 1.0
"""Seconds that a step of the server takes, so that the clock moves."""
_VERBS = 2_000
"""Verbs of each party after which a trace is given up."""
_PACKAGE = str(Path(__file__).parents[1] / "world")
_HERE = str(Path(__file__).parent)
TRACED = "traced"


class Untraceable(Exception):  # noqa: N818  not an error: the reason why there is no trace
    """Raised with the reason if what parties do in a round does not follow from a trace.

    Example::

        str(Untraceable("clients read the clock"))  # 'clients read the clock'
    """


class RecordingNode(Node[Any]):
    """A party whose verbs take no time: each is noted. Waits end with what all others send.

    A wait for the first few, or for some time, is noted as such, and ends when all have sent what they will; with
    ``late``, without that client's. Messages of the kind ``shuffles`` come in the order of ``shuffled``. ``reasons``
    say what of it depends on times, with the line that asks.
    """

    def __init__(self, state: Party, learner: PartyLearner, rounds: int, late: int | None, shuffles: str = "") -> None:
        self.asked_for_its_number = False
        super().__init__(state, learner)
        self.notes: Notes = []
        self.beside: list[Notes] = []
        """What coroutines do that it has started and does not wait for."""
        self.reasons: dict[str, None] = {}
        self._number, self._rounds, self._late, self._shuffled = state.number, rounds, late, shuffles
        self._lists: dict[Task, Notes] = {}
        self._got: dict[int, str] = {}
        """The tensors that have come, by identity: passed on, they keep their bytes."""

    # --- what a trace cannot know -----------------------------------------------------------------------------------

    @property
    def party(self) -> int:
        """The party's number: clients that ask for it may each do something else."""
        self.asked_for_its_number |= not _from_a_node(sys._getframe(1))
        return self._number

    @party.setter
    def party(self, number: int) -> None:
        self._number = number

    @property
    @override
    def now(self) -> float:
        self._depends("reads the clock")
        return super().now

    @property
    @override
    def current_round(self) -> int:
        return RoundNumber.of(super().current_round, self._decides)

    def _decides(self, place: str) -> None:
        self._depend("decides by the number of the round", place)

    @property
    @override
    def down(self) -> bool:
        self._depends("asks whether it is down")
        return False

    @property
    @override
    def given_up(self) -> int:
        self._depends("counts rounds that were given up")
        return super().given_up

    @override
    def skip_round(self) -> None:
        self._depends("gives rounds up")
        super().skip_round()

    @override
    def arrived(self, kind: str, round: int | None = None) -> list[Message]:
        messages = super().arrived(kind, round)
        if not _from_a_node(sys._getframe(1)):
            self._depends(f"looks which {kind!r} messages are here")
        return messages

    @override
    def finish(self, reason: str) -> None:
        self._depends(f"ends the run ({reason})")
        super().finish(TRACED)

    def _depends(self, what: str) -> None:
        self._depend(what, _caller())

    def _depend(self, what: str, place: str) -> None:
        who = "the server" if self._number == SERVER else "a client"
        self.reasons[f"{who} {what} ({place})"] = None

    # --- verbs ------------------------------------------------------------------------------------------------------

    @override
    async def sleep(self, seconds: float) -> None:
        await self._verb(Wait(seconds=checked_seconds("sleep", seconds)))

    @override
    async def activated(self) -> None:
        await self._verb(AwaitedActivation())

    @override
    async def back(self, client: int) -> None:
        await self._verb()

    @override
    async def delay(self, kind: str, factor: float = 1.0, round: int = -1) -> None:
        await self._verb(Wait(kind, factor, round=round))

    @override
    async def compute(self, operation: Operation[T]) -> T:
        if not isinstance(operation, Operation):
            raise no_operation(operation)
        operation.begin()
        recorder = self.shared.recorder
        ends = operation.counts == "round"
        if ends and recorder.rounds == self._rounds:
            self.world.finish(TRACED)
            await self.world.signal("the end of the trace")
        await self._verb(Work(operation))
        if ends:
            recorder.rounds += 1
            recorder.current_round += 1
            await self.world.pause(_STEP, "its step to end")
        elif operation.commit is not None:
            operation.commit()
        return operation.result

    @override
    async def send(self, to: int | str, message: Message) -> None:
        await self._send(to, message, delayed=False)

    @override
    async def upload(self, to: int | str, message: Message) -> None:
        await self._send(to, message, delayed=True)

    async def _send(self, to: int | str, message: Message, delayed: bool) -> None:
        addressed = self.state.addressed(self.state.receiver(to, message), message)
        passed_on = tuple(name for name, handle in addressed.carried.items() if id(handle) in self._got)
        await self._verb(Sending(addressed, delayed, passed_on))
        self.world.soon(lambda: self.state.deliver(addressed))

    @override
    async def recv(
        self, kind: str, round: int | None = None, timeout: float | None = None, sender: int | None = None
    ) -> Message:
        senders = () if sender is None else (sender,)
        messages = await self._receive(Reception(kind, round, senders, 1, timeout is not None))
        if not messages:
            raise TimeoutError(f"no {kind!r} message within {timeout} s")
        return messages[0]

    @override
    async def gather(
        self, kind: str, count: int | None = None, senders: Collection[int] | None = None,
        round: int | None = None, timeout: float | None = None, forgoing: bool = False,
    ) -> list[Message]:  # fmt: skip
        asked = tuple(sorted(self.clients if senders is None else senders))
        many = len(asked) if count is None else count
        note = Reception(kind, round, asked, many, timeout is not None)
        return await self._receive(note, note.patient or forgoing or many < len(asked))

    async def _receive(self, note: Reception, perhaps_fewer: bool = False) -> list[Message]:
        await self._verb(note)
        senders = note.senders or None
        if perhaps_fewer and self._late is not None and senders and len(senders) > 1:
            senders = tuple(sender for sender in senders if sender != self._late)
        wanted = self.state.mailbox.want(note.kind, None if senders else 1, senders, note.round)
        timer = None
        if note.patient or perhaps_fewer:
            wanted.patient = True
            timer = self.world.after(_PATIENCE, wanted.time_out, Moment.TIMEOUT)
        try:
            await wanted
        finally:
            if timer is not None:
                timer.cancel()
        for message in wanted.value:
            for handle in message.carried.values():
                self._got[id(handle)] = note.kind
        return shuffled(wanted.value) if note.kind == self._shuffled else wanted.value

    # --- structure --------------------------------------------------------------------------------------------------

    @override
    def worker(self) -> RecordingNode:
        return self

    @override
    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Task:
        self.beside.append([])
        return self._started(coroutine, self.beside[-1])

    @override
    async def together(self, *coroutines: Coroutine[Any, Any, T]) -> list[T]:
        branches: list[Notes] = [[] for _ in coroutines]
        self._here().append(Fork(branches))
        lists = iter(branches)
        return await all_of(self.world, lambda coroutine: self._started(coroutine, next(lists)), coroutines)

    def _started(self, coroutine: Coroutine[Any, Any, Any], notes: Notes) -> Task:
        task = super().start(coroutine)
        self._lists[task] = notes
        return task

    @override
    def record(self, what: str, /, **fields: Any) -> None:
        self._here().append(Row(what, fields))

    def _here(self) -> Notes:
        return self._lists.get(self.world.current(), self.notes)

    async def _verb(self, *notes: Note) -> None:
        if self._open:
            await self._enter()
        counts = self.shared.recorder
        assert isinstance(counts, RoundCounts)
        counts.verbs += 1
        if counts.verbs > _VERBS * (1 + len(self.clients)):
            raise Untraceable(f"{party_name(self._number)} goes on without end while no time passes ({_caller()})")
        self._here().extend(notes)


class RoundCounts(Recorder):
    """Counts the rounds of a trace, and keeps no table."""

    def __init__(self) -> None:
        super().__init__("summary")
        self.verbs = 0
        """The verbs of all parties so far."""


def shuffled(things: Sequence[T]) -> list[T]:
    """Return the second, the fourth, …, and then the others backwards: neither their order nor the reverse, from 3 on.

    Example: ``shuffled([1, 2, 3, 4, 5])  # [2, 4, 5, 3, 1]``
    """
    return [*things[1::2], *things[::2][::-1]]


def _from_a_node(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith((_PACKAGE, _HERE))


def _caller() -> str:
    """Return file and line of the innermost frame that is not of a node."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _from_a_node(frame):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
