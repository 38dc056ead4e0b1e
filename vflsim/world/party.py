"""What a node is made of: its draws, its clock, and what it shares with the other parties of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vflsim.learning.batches import BatchSequence
from vflsim.timing.activation import ActivationProcess
from vflsim.timing.compute import AnyCompute
from vflsim.timing.delays import Delay
from vflsim.timing.sampler import Sampler
from vflsim.world.kernel import World
from vflsim.world.mailbox import Mailbox
from vflsim.world.record import Recorder
from vflsim.world.transport import Transport


class Draws:
    """A party's random times. The index of a draw is how often the party *began* that kind of activity, so the k-th
    draw is the same number under every protocol (common random numbers)."""

    def __init__(self, seed: int, party: int) -> None:
        self._seed, self._party = seed, party
        self._samplers: dict[str, Sampler] = {}
        self._begun: dict[str, int] = {}

    def next(self, purpose: str, delay: Delay) -> tuple[int, float]:
        """Index and seconds of the next draw for ``purpose``; it is used up even if the work is abandoned."""
        index = self._begun.get(purpose, 0)
        self._begun[purpose] = index + 1
        sampler = self._samplers.get(purpose)
        if sampler is None:
            sampler = self._samplers[purpose] = Sampler(delay, self._seed, self._party, purpose)
        return index, sampler.draw(index)


@dataclass(frozen=True, slots=True)
class PartyClock:
    """What decides a party's times: its compute model, its upload delay and its activations."""

    compute: AnyCompute
    upload_delay: Delay
    activation: ActivationProcess | None = None


@dataclass(slots=True)
class Shared:
    """What all nodes of one run share."""

    world: World
    transport: Transport
    recorder: Recorder
    codec: Any
    clients: tuple[int, ...]
    sequence: BatchSequence
    mailboxes: dict[int, Mailbox] = field(default_factory=dict)
    progressed: Callable[[], None] | None = None
