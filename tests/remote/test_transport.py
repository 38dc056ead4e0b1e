"""Messages between clients: handed on once, when bytes and time have come; the server learns the time alone."""

from collections.abc import Callable
from typing import Any

import pytest

from vflsim.protocols.fedvs.messages import ModelShare, Sharers
from vflsim.remote import transport
from vflsim.remote.control import ControlError, Dropped, IsDue, Passing
from vflsim.remote.frames import kinds_of
from vflsim.remote.transport import PeerMail, numbered, stand_in
from vflsim.world.messages import Message

Got = list[tuple[int, float]]


def read(sender: int, body: bytes) -> tuple[Message, float]:
    """A message whose round is its body, sent at 0.5 s."""
    message = Message(round=int(body))
    message.sender = sender
    return message, 0.5


def mail(emulated: bool = True) -> tuple[PeerMail, Got]:
    got: Got = []

    def note(message: Message, at: float) -> None:
        got.append((message.round, at))

    return PeerMail(read, note, note, emulated), got


def bytes_of(number: int) -> Callable[[PeerMail], None]:
    return lambda box: box.came(2, True, numbered(number, b"%d" % (100 + number)))


def due(number: int, at: float) -> Callable[[PeerMail], None]:
    return lambda box: box.take(IsDue(sender=2, number=number, at=at))


def dropped(number: int) -> Callable[[PeerMail], None]:
    return lambda box: box.take(Dropped(sender=2, number=number))


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        ([bytes_of(0), due(0, 1.5)], [(100, 1.5)]),
        ([due(0, 1.5), bytes_of(0)], [(100, 1.5)]),
        ([bytes_of(0), bytes_of(3), due(3, 2.0), due(0, 2.5)], [(103, 2.0), (100, 2.5)]),
        ([bytes_of(0), dropped(0), bytes_of(1), due(1, 3.0)], [(101, 3.0)]),
        ([dropped(0), bytes_of(0)], []),
        ([bytes_of(0)], []),
        ([due(0, 1.0)], []),
    ],
)
def test_a_message_is_handed_on_when_it_is_here_and_due(story: list[Callable[[PeerMail], None]], expected: Got) -> None:
    box, got = mail()
    for step in story:
        step(box)
    assert got == expected


def test_a_crash_loses_what_has_arrived_in_its_time_and_whose_bytes_still_come() -> None:
    box, got = mail()
    for step in (due(0, 1.0), PeerMail.crash, bytes_of(0), bytes_of(1), due(1, 2.0)):
        step(box)
    assert got == [(101, 2.0)]


def test_without_emulated_delays_and_outside_time_a_message_is_handed_on_at_once() -> None:
    box, got = mail(emulated=False)
    bytes_of(0)(box)
    assert got == [(100, 0.5)]
    box, got = mail()
    box.came(3, False, b"7")
    assert got == [(7, 0.5)]


@pytest.mark.parametrize("body", [b"", b"1234567", numbered(4, b"104"), numbered(3, b"103")])
def test_a_frame_without_a_new_number_is_refused(body: bytes) -> None:
    box, _ = mail()
    bytes_of(4)(box)
    with pytest.raises(ControlError):
        box.came(2, True, body)


def test_a_client_that_sends_far_ahead_of_its_time_is_refused_and_what_was_due_counts_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "MOST_WAITING", 25)  # two of these frames
    box, got = mail()
    for number in range(10):
        bytes_of(number)(box)
        (due(number, float(number)) if number % 2 else dropped(number))(box)
    assert [at for _, at in got] == [1, 3, 5, 7, 9]
    bytes_of(10)(box)
    bytes_of(11)(box)
    with pytest.raises(ControlError, match="33 bytes wait for their time"):
        bytes_of(12)(box)


def test_what_a_former_process_has_left_is_forgotten_with_the_first_word_on_its_successor() -> None:
    box, got = mail()
    new = transport.LIFE
    for step in (bytes_of(3), bytes_of(4), due(5, 0.5), bytes_of(new), due(4, 1.0), due(new, 2.0), due(3, 3.0)):
        step(box)
    assert got == [(104, 1.0), (100 + new, 2.0)]
    assert box._bytes[2] == 0


def stands_for(passing: Passing, clients: frozenset[int] = frozenset({1, 2, 3})) -> Any:
    return stand_in(passing, 1, kinds_of(()), clients)


def passing(to: int = 2, message: str = "model_share") -> Passing:
    return Passing(to=to, message=message, round=4, size=600, at=0.5)


def test_a_message_without_content_stands_for_one_between_clients() -> None:
    made = stands_for(passing())
    assert isinstance(made, ModelShare)
    assert (made.sender, made.receiver, made.round, made.carried) == (1, 2, 4, {})
    assert isinstance(stands_for(passing(message="sharers")), Sharers), "also with fields of its own"


@pytest.mark.parametrize(
    ("wrong", "clients"),
    [
        (passing(to=1), frozenset({1, 2, 3})),
        (passing(to=0), frozenset({1, 2, 3})),
        (passing(to=4), frozenset({1, 2, 3})),
        (passing(message="unheard"), frozenset({1, 2, 3})),
        (passing(), frozenset()),
    ],
    ids=["to itself", "to the server", "to a stranger", "of an unknown kind", "in a run without connections"],
)
def test_a_message_that_cannot_be_between_clients_is_refused(wrong: Passing, clients: frozenset[int]) -> None:
    with pytest.raises(ControlError):
        stands_for(wrong, clients)
