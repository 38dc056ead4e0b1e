"""Messages between clients in one run: their bytes go directly, and their times come from the server."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable

from vflsim.protocol import Message
from vflsim.remote.channel import MOST_WAITING
from vflsim.remote.control import ControlError, Dropped, IsDue

_NUMBER = struct.Struct("<Q")
"""Before a message to another client: its number among all that its sender has sent in the run."""
LIFE = 2**32
"""The n-th new process of a client numbers its messages from n times this on."""
Key = tuple[int, int]
"""Sender and number of a message."""


def numbered(number: int, body: bytes) -> bytes:
    """Return the body of a frame to another client."""
    return _NUMBER.pack(number) + body


class PeerMail:
    """Messages from other clients that wait for their emulated time, or hand on at once what is not ``emulated``.

    ``read`` gives the message from a sender in a body, and its sender's instant (s); ``deliver`` takes it at an
    instant, ``deliver_free`` one that takes no time. Invariants: a message is handed on once, when both its bytes and
    its time have come; one that was abandoned on its emulated way is never handed on; at most ``MOST_WAITING`` bytes
    of a sender wait for their time. What a sender's former process has left without a time is forgotten when the server
    speaks of its new one's messages.
    """

    def __init__(
        self,
        read: Callable[[int, bytes], tuple[Message, float]],
        deliver: Callable[[Message, float], None],
        deliver_free: Callable[[Message, float], None],
        emulated: bool,
    ) -> None:
        self._read, self._deliver, self._deliver_free, self._emulated = read, deliver, deliver_free, emulated
        self._waiting: dict[Key, tuple[Message, int]] = {}
        self._bytes: Counter[int] = Counter()
        self._known: dict[Key, float | None] = {}
        self._latest: dict[int, int] = {}
        self._lives: dict[int, int] = {}

    def came(self, sender: int, timed: bool, body: bytes) -> None:
        """Take a frame from another client. Raises ``ControlError`` and ``DataError`` for what cannot be used."""
        if not timed:
            self._deliver_free(*self._read(sender, body))
            return
        if len(body) < _NUMBER.size:
            raise ControlError(f"a message of {len(body)} bytes between clients")
        (number,) = _NUMBER.unpack_from(body)
        latest = self._latest.get(sender, -1)
        if number <= latest:
            raise ControlError(f"message {number} after message {latest}", allowed="ascending numbers")
        self._latest[sender] = number
        message, at = self._read(sender, body[_NUMBER.size :])
        key = sender, number
        if not self._emulated:
            self._deliver(message, at)
        elif key in self._known:
            if (due := self._known.pop(key)) is not None:
                self._deliver(message, due)
        else:
            self._waiting[key] = message, len(body)
            self._bytes[sender] += len(body)
            if self._bytes[sender] > MOST_WAITING:
                raise ControlError(f"{self._bytes[sender]} bytes wait for their time", allowed=f"{MOST_WAITING}")

    def crash(self) -> None:
        """Lose the messages that have arrived in emulated time, and whose bytes are still to come."""
        self._known = dict.fromkeys(self._known)

    def take(self, word: IsDue | Dropped) -> None:
        """Take the server's word on a message from another client."""
        key, at = (word.sender, word.number), word.at if isinstance(word, IsDue) else None
        if (life := word.number // LIFE) > self._lives.get(word.sender, 0):
            self._forget_before(word.sender, life)
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            self._known[key] = at
            return
        message, size = waiting
        self._bytes[word.sender] -= size
        if at is not None:
            self._deliver(message, at)

    def _forget_before(self, sender: int, life: int) -> None:
        """Forget messages of a client's former processes: no word on them will come, or none of their bytes."""
        self._lives[sender] = life
        for key in [key for key in self._waiting if key[0] == sender and key[1] < life * LIFE]:
            self._bytes[sender] -= self._waiting.pop(key)[1]
        for key in [key for key in self._known if key[0] == sender and key[1] < life * LIFE]:
            del self._known[key]
