"""Messages on their way: latency first, then bandwidth."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from vflsim.errors import ProtocolError
from vflsim.streams import party_name
from vflsim.timing.delays import Constant
from vflsim.timing.network import AnyNetwork, Dedicated, Link
from vflsim.timing.sampler import Sampler
from vflsim.world.kernel import Timer, World
from vflsim.world.messages import Message
from vflsim.world.record import Recorder


@dataclass(eq=False, slots=True)
class Transfer:
    """One message under way. ``state``: latency, queued, moving, then delivered, abandoned or unfinished."""

    message: Message
    size: int
    rate: float
    index: int
    deliver: Callable[[Message], None]
    latency: tuple[str, int, float]  # purpose, index and seconds of its draw
    state: Literal["latency", "queued", "moving", "delivered", "abandoned", "unfinished"] = "latency"
    began: float = float("nan")
    timer: Timer | None = None

    @property
    def under_way(self) -> bool:
        """Whether it can still be abandoned."""
        return self.state in ("latency", "queued", "moving")


class Transport:
    """Moves messages between parties over their links.

    A message first waits the latency of the sender's and of the receiver's link, which occupies neither; then its bytes
    take ``8 · bytes / min(sender's up, receiver's down)`` seconds. ``fifo``: a party sends one message at a time and
    receives one at a time, in the order in which latencies end. ``dedicated``: nothing ever waits for anything else.

    Invariant (``fifo``): a moving transfer is the head of its sender's up queue and of its receiver's down queue.
    """

    def __init__(self, world: World, network: AnyNetwork, links: Sequence[Link], seed: int, recorder: Recorder) -> None:
        self._world, self._links, self._seed, self._recorder = world, links, seed, recorder
        self._contended = not isinstance(network, Dedicated)
        self._up: list[deque[Transfer]] = [deque() for _ in links]
        self._down: list[deque[Transfer]] = [deque() for _ in links]
        self._latencies: dict[tuple[int, int], _Latency] = {}
        self._open: dict[Transfer, None] = {}  # in the order sent
        self._sent_count: dict[tuple[int, str], int] = {}

    def send(self, message: Message, size: int, deliver: Callable[[Message], None]) -> Transfer:
        """Put ``message`` of ``size`` bytes on its way; ``deliver`` is called when its last bit has arrived."""
        sender, receiver = message.sender, message.receiver
        if not 0 <= receiver < len(self._links) or sender == receiver:
            raise ProtocolError(f"a {message.kind!r} message to party {receiver}", allowed="any other party of the run")
        index = self._sent_count.get((sender, message.kind), 0)
        self._sent_count[sender, message.kind] = index + 1
        rate = min(self._links[sender].up, self._links[receiver].down)
        latency = self._latencies.get((sender, receiver))
        if latency is None:
            latency = _Latency(self._links, sender, receiver, self._seed)
            self._latencies[sender, receiver] = latency
        drawn = latency.draw()
        transfer = Transfer(message, size, rate, index, deliver, drawn)
        self._open[transfer] = None
        if drawn[2] > 0:
            transfer.timer = self._world.after(drawn[2], lambda: self._after_latency(transfer))
        else:
            self._enter(transfer)
        return transfer

    def abandon(self, transfer: Transfer) -> None:
        """Take a message off its link; the bytes already sent count."""
        if not transfer.under_way:
            return
        occupies = transfer.state in ("queued", "moving")
        self._cut(transfer, "abandoned")
        if self._contended and occupies:
            self._up[transfer.message.sender].remove(transfer)
            self._down[transfer.message.receiver].remove(transfer)
            self._next(transfer)

    def close(self) -> None:
        """The run is over: account for what is still under way; it will not arrive."""
        for transfer in list(self._open):
            self._cut(transfer, "unfinished")

    def _cut(self, transfer: Transfer, outcome: Literal["abandoned", "unfinished"]) -> None:
        if transfer.timer is not None:  # it may be due at this very instant
            transfer.timer.cancel()
        if transfer.state == "latency":
            self._record_latency(transfer, outcome)
        sent = self._sent(transfer) if transfer.state == "moving" else 0
        transfer.state = outcome
        self._close(transfer, sent, outcome)

    def _after_latency(self, transfer: Transfer) -> None:
        self._record_latency(transfer, "done")
        self._enter(transfer)

    def _record_latency(self, transfer: Transfer, outcome: str) -> None:
        message, (purpose, index, drawn) = transfer.message, transfer.latency
        start, end, round_ = message.sent, self._world.now(), message.round
        self._recorder.event(start, end, message.sender, purpose, round_, message.receiver, 0, index, drawn, outcome)

    def _enter(self, transfer: Transfer) -> None:
        transfer.state = "queued"
        transfer.timer = None
        if not self._contended:
            self._start(transfer)
            return
        self._up[transfer.message.sender].append(transfer)
        self._down[transfer.message.receiver].append(transfer)
        self._try(transfer)

    def _try(self, transfer: Transfer) -> None:
        up, down = self._up[transfer.message.sender], self._down[transfer.message.receiver]
        if transfer.state == "queued" and up[0] is transfer and down[0] is transfer:
            self._start(transfer)

    def _start(self, transfer: Transfer) -> None:
        transfer.state, transfer.began = "moving", self._world.now()
        transfer.timer = self._world.after(8 * transfer.size / transfer.rate, lambda: self._finish(transfer))

    def _finish(self, transfer: Transfer) -> None:
        transfer.state = "delivered"
        self._close(transfer, transfer.size, "done")
        transfer.deliver(transfer.message)
        if self._contended:
            self._up[transfer.message.sender].popleft()
            self._down[transfer.message.receiver].popleft()
            self._next(transfer)

    def _next(self, gone: Transfer) -> None:
        for queue in (self._up[gone.message.sender], self._down[gone.message.receiver]):
            if queue:
                self._try(queue[0])

    def _sent(self, transfer: Transfer) -> int:
        seconds = self._world.now() - transfer.began
        return int(min(transfer.size, seconds * transfer.rate / 8)) if seconds > 0 else 0  # the rate may be inf

    def _close(self, transfer: Transfer, sent: int, outcome: str) -> None:
        del self._open[transfer]
        self._recorder.transfer(transfer.message, transfer.index, transfer.began, self._world.now(), sent, outcome)


class _Latency:
    """The latency of one ordered pair of parties: the sum of both links' draws, keyed ``latency.i→j``."""

    def __init__(self, links: Sequence[Link], sender: int, receiver: int, seed: int) -> None:
        self.purpose = f"latency.{party_name(sender)}→{party_name(receiver)}"
        laws = [(party, links[party].latency) for party in (sender, receiver)]
        self._constant = sum(law.value for _, law in laws if isinstance(law, Constant))
        self._samplers = [
            Sampler(law, seed, party, self.purpose) for party, law in laws if not isinstance(law, Constant)
        ]
        self._index = -1

    def draw(self) -> tuple[str, int, float]:
        """Purpose and index of the next message's draw, and its latency in seconds."""
        self._index += 1
        seconds = self._constant + sum(sampler.draw(self._index) for sampler in self._samplers)
        return self.purpose, self._index, seconds
