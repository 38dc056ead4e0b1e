"""``async with node.until(kind, round=…)``: work that a message makes useless."""

from __future__ import annotations

from types import TracebackType

from vflsim.world.kernel import World
from vflsim.world.mailbox import ArrivalWatch, Mailbox
from vflsim.world.messages import Message
from vflsim.world.task import Abandoned, Task
from vflsim.world.transfers import Transfer
from vflsim.world.transport import Transport

_FEW = 8


class Scopes:
    """The ``until`` blocks of one party that are open, by task, from the outermost to the innermost."""

    def __init__(self, world: World, mailbox: Mailbox, transport: Transport) -> None:
        self.world, self.mailbox, self.transport = world, mailbox, transport
        self.open: dict[Task, list[Until]] = {}

    def check(self) -> None:
        """Raise ``Abandoned`` if the message of a block of the current task is here."""
        for scope in self.open.get(self.world.current(), ()):
            scope.check()

    def hold(self, transfer: Transfer) -> None:
        """Bind a transfer to the messages of all blocks of the current task."""
        for scope in self.open.get(self.world.current(), ()):
            scope.hold(transfer)


class Until:
    """Runs its body, and abandons it the moment the message arrives: delay, queue, computation, transfer.

    Messages that the body has sent stay bound to the block after the body has ended: a transfer still under way when
    the message arrives is taken off its link. The message itself is not consumed: ``recv`` it afterwards. Coroutines
    that the body has started (``node.start``) are not part of the body, and continue.

    Invariant: the body never runs on past the arrival; a message already here when the block is entered abandons the
    body at its first verb.
    """

    def __init__(self, scopes: Scopes, kind: str, round_: int | None) -> None:
        self._scopes, self._kind, self._round = scopes, kind, round_
        self._task: Task | None = None
        self._watch: ArrivalWatch | None = None
        self._transfers: list[Transfer] = []
        self._tidy_at = _FEW
        self.fired = False

    async def __aenter__(self) -> Until:
        self._task = self._scopes.world.current()
        self._scopes.open.setdefault(self._task, []).append(self)
        if self._scopes.mailbox.has(self._kind, self._round):
            self.fired = True
        else:
            self._watch = self._scopes.mailbox.watch(self._kind, self._round, self._fire)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        assert task is not None
        open_here = self._scopes.open[task]
        open_here.remove(self)
        if not open_here:
            del self._scopes.open[task]
        absorbed = isinstance(error, Abandoned) and error.scope is self
        failed = error is not None and not absorbed  # or abandoned from outside
        if self._watch is not None and (failed or not any(transfer.under_way for transfer in self._transfers)):
            self._scopes.mailbox.unwatch(self._watch)  # nothing is left to abandon
        return absorbed

    def hold(self, transfer: Transfer) -> None:
        """Bind a transfer begun in the body to the message."""
        if len(self._transfers) >= self._tidy_at:  # rarely: a body may send to everybody
            self._transfers = [t for t in self._transfers if t.under_way]
            self._tidy_at = 2 * len(self._transfers) + _FEW
        self._transfers.append(transfer)

    def check(self) -> None:
        """Raise ``Abandoned`` if the message is here: called at the start of every verb in the body."""
        if self.fired:
            raise Abandoned(self)

    def ends_with(self, message: Message) -> bool:
        """Whether ``message`` is one that ends the block."""
        return message.kind == self._kind and (self._round is None or message.round == self._round)

    @property
    def names_a_round(self) -> bool:
        """Whether only a message of one round ends the block."""
        return self._round is not None

    def _fire(self) -> None:
        self.fired = True
        for transfer in self._transfers:
            self._scopes.transport.abandon(transfer)
        self._transfers.clear()
        if self._task is not None:
            self._task.interrupt(self)
