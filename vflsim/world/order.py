"""The order in which a party meets its inputs: messages that arrive, and activities of its own that end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from vflsim.world.messages import EvaluationAnswer, EvaluationRequest, Message

_OUTSIDE_TIME = (EvaluationAnswer, EvaluationRequest)


class Item(NamedTuple):
    """One input: a message of kind ``what`` from ``sender``, of a round; or the end of an own activity (sender −1)."""

    what: str
    sender: int = -1
    round: int = -1

    def __str__(self) -> str:
        if self.sender < 0:
            return f"the end of {self.what!r}"
        return f"a {self.what!r} message of round {self.round} from party {self.sender}"


@dataclass(slots=True)
class InputOrder:
    """The inputs of one party, in the order in which it met them. A party's weights are a function of it.

    Messages of evaluations are left out: they change nothing.

    Example::

        order = InputOrder()
        order.arrived(message)
        order.ended("compute.embed")
    """

    items: list[Item] = field(default_factory=list)

    def arrived(self, message: Message) -> None:
        """Note a message that has been handed to the party."""
        if counts(message):
            self.items.append(item_of(message))

    def ended(self, activity: str) -> None:
        """Note an activity of the party's own that has ended, by its kind in the table of events."""
        self.items.append(Item(activity))


def item_of(message: Message) -> Item:
    """Return the input that a message is."""
    return Item(message.kind, message.sender, message.round)


def counts(message: Message) -> bool:
    """Return whether a message is an input that changes something: no message of an evaluation is."""
    return not isinstance(message, _OUTSIDE_TIME)
