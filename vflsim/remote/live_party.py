"""A party of a live run: its mailboxes, its draws, and what it sends outside time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from typing_extensions import override

from vflsim.remote.wires import LiveWires
from vflsim.timing.delays import Delay
from vflsim.world.kernel import World
from vflsim.world.mailbox import Mailbox
from vflsim.world.messages import Message
from vflsim.world.party import Draws, Party


class LiveDraws(Draws):
    """Draws that another process can go on with: ``begun`` is how often each purpose has been drawn."""

    def __init__(self, seed: int, party: int) -> None:
        super().__init__(seed, party)
        self.begun: dict[str, int] = {}
        self._go_on: dict[str, int] = {}

    @override
    def next(self, purpose: str, delay: Delay, now: float = 0.0) -> tuple[int, float]:
        for _ in range(self._go_on.pop(purpose, 0)):
            super().next(purpose, delay, now)
        index, drawn = super().next(purpose, delay, now)
        self.begun[purpose] = index + 1
        return index, drawn

    def go_on(self, begun: Mapping[str, int]) -> None:
        """Go on where another party's ``begun`` has stood. Nothing must have been drawn."""
        self.begun, self._go_on = dict(begun), dict(begun)


class LiveParty(Party):
    """A party that sends what takes no time by ``free``, past the network."""

    free: Callable[[Message], None]
    draws: LiveDraws

    @override
    def deliver(self, message: Message) -> None:
        self.free(message)

    def under_way(self) -> dict[str, Tensor]:
        """Return the secret of its codec's noise."""
        return {"secret": torch.frombuffer(bytearray(self._live_wires.secret), dtype=torch.uint8)}

    def take_up(self, under_way: Mapping[str, Tensor]) -> None:
        """Take up what ``under_way`` has returned in another process."""
        self._live_wires.secret = under_way["secret"].numpy().tobytes()

    @property
    def _live_wires(self) -> LiveWires:
        wires = self.run.wires
        assert isinstance(wires, LiveWires), "it has been made so"
        return wires

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how often it has drawn, encoded and taken batches."""
        return {
            "draws": dict(self.draws.begun),
            "encoded": dict(self.wire.encoded),
            "batches": {"begun": self._begun},
        }

    def go_on(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Go on where another party's ``counts`` have stood."""
        self.draws.go_on(counts["draws"])
        self.wire.encoded.update(counts["encoded"])
        self._begun = counts["batches"]["begun"]


class OwnBox(Mailbox):
    """The mailbox of this process's party. Messages outside time, of evaluations, stay in it when the party crashes."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._free: list[Message] = []

    def deliver_free(self, message: Message) -> None:
        """Take in a message outside time."""
        self._free = [*self._here(self._free), message]
        self.deliver(message)

    @override
    def clear(self) -> None:
        self._free = self._here(self._free)
        super().clear()
        here = self._here(self._free)
        self.give_back([message for message in self._free if message not in here])

    def _here(self, some: list[Message]) -> list[Message]:
        wanted = {id(message) for message in some}
        return [message for message, _ in self.unread() if id(message) in wanted]


class RemoteBox(Mailbox):
    """The mailbox of a party in another process: what is delivered is sent there."""

    def __init__(self, world: World, send: Callable[[Message], None]) -> None:
        super().__init__(world)
        self._send = send

    @override
    def deliver(self, message: Message) -> None:
        """Send the message."""
        self._send(message)
