"""Connections: who gets in, who does not, and that the others notice nothing of it."""

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from vflsim.remote import channel as channels
from vflsim.remote.admission import MOST_STRANGERS, Admission
from vflsim.remote.channel import MOST_EARLY, Channel, GoneError, LostError, connected
from vflsim.remote.control import MOST_BYTES, Common, Control, Counted, Hello, Refused, packed
from vflsim.remote.frames import CONTROL, HEAD, TIMED, frame
from vflsim.remote.keys import client_context, host_of

DIGEST, MOST = "a" * 64, 10_000


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The warnings that the package logs, as they come; pytest's own fixture would watch the log of every test."""
    texts: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    log, handler = logging.getLogger("vflsim.remote"), Handler(logging.WARNING)
    log.addHandler(handler)
    yield texts
    log.removeHandler(handler)


def hello(party: int, scenario: str = DIGEST, version: str = "1", rows: str = DIGEST) -> Hello:
    return Hello(party=party, scenario=scenario, rows=rows, version=version, machine="here")


async def gate_of(identities: Path, timeout: float = 5.0) -> tuple[Admission, int]:
    gate = Admission(identities / "ours" / "server", frozenset({1, 2}), Common(DIGEST, DIGEST, "1"), MOST, timeout)
    return gate, await gate.open("127.0.0.1", 0)


async def joined(identities: Path, port: int, party: int, whose: str = "ours", said: Hello | None = None) -> Channel:
    identity = identities / whose / f"client-{party}"
    return await connected("127.0.0.1", port, identity, said or hello(party), MOST, 2.0)


def attending(channel: Channel) -> tuple[list[Control], list[LostError], list[tuple[bool, bytes]]]:
    control: list[Control] = []
    lost: list[LostError] = []
    messages: list[tuple[bool, bytes]] = []
    channel.attend(control.append, lost.append, lambda timed, body: messages.append((timed, body)))
    return control, lost, messages


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_party_that_is_slow_is_named_before_it_counts_as_lost(
    loop: asyncio.AbstractEventLoop,
    identities: Path,
    logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "BEAT_S", 0.01)

    async def play() -> None:
        gate, port = await gate_of(identities, timeout=0.2)
        client = await joined(identities, port, 1)
        client._tasks[1].cancel()  # it beats no longer
        await until(lambda: gate.channels[1].lost is not None)
        await client.close()
        await gate.close()
        assert "client-1 gave no sign of life for" in str(gate.channels[1].lost)
        assert not isinstance(gate.channels[1].lost, GoneError)

    loop.run_until_complete(play())
    assert [text for text in logged if text.startswith("client-1 gives no sign of life for")]


def test_a_party_that_is_lost_is_not_called_slow(
    loop: asyncio.AbstractEventLoop,
    identities: Path,
    logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "BEAT_S", 0.01)

    async def play() -> None:
        gate, port = await gate_of(identities, timeout=0.1)
        channel = await joined(identities, port, 1)
        await until(lambda: 1 in gate.channels)
        await channel.close()
        await until(lambda: gate.channels[1].lost is not None)
        await asyncio.sleep(0.3)
        await gate.close()

    loop.run_until_complete(play())
    assert not [text for text in logged if "gives no sign of life" in text]


def test_a_client_whose_connection_has_ended_may_come_again_where_it_is_expected(
    loop: asyncio.AbstractEventLoop, identities: Path
) -> None:
    async def play() -> None:
        gate, port = await gate_of(identities)
        back: list[int] = []
        gate.on_return = back.append
        first = await joined(identities, port, 1)
        gate.expected.add(1)
        with pytest.raises(LostError, match="client-1 is connected already"):  # its connection still stands
            await joined(identities, port, 1)
        await first.close()
        await until(lambda: isinstance(gate.channels[1].lost, GoneError))
        gate.expected.clear()
        with pytest.raises(LostError, match="client-1 is connected already"):
            await joined(identities, port, 1)
        gate.expected.add(1)
        again = await joined(identities, port, 1)
        await until(lambda: back == [1])
        control, _, _ = attending(gate.channels[1])
        again.control(Counted(updates=3))
        await until(lambda: control == [Counted(updates=3)])
        await again.close()
        await gate.close()

    loop.run_until_complete(play())


async def garbage(identities: Path, port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bytes(range(256)) * 20)
    with suppress(OSError):
        await reader.read()
    writer.close()


async def without_certificate(identities: Path, port: int) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(identities / "ours" / "client-1" / "authority.pem")
    with suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host_of(0))
        writer.write(frame(CONTROL, packed(hello(2))))
        with suppress(OSError, ssl.SSLError):
            assert await reader.read() == b""
        writer.close()


async def of_another_authority(identities: Path, port: int) -> None:
    with pytest.raises(LostError, match="no certificate of this authority"):
        await joined(identities, port, 2, "theirs")


async def expired(identities: Path, port: int) -> None:
    with pytest.raises(LostError):
        await joined(identities, port, 2, "past")


async def as_another_party(identities: Path, port: int) -> None:
    with pytest.raises(LostError, match="a greeting of client-1 with the certificate of client-2"):
        await joined(identities, port, 2, said=hello(1))


async def as_a_stranger(identities: Path, port: int) -> None:
    with pytest.raises(LostError, match="client-3 takes no part"):
        await joined(identities, port, 3)


async def a_second_time(identities: Path, port: int) -> None:
    with pytest.raises(LostError, match="client-1 is connected already"):
        await joined(identities, port, 1)


async def with_another_scenario(identities: Path, port: int) -> None:
    with pytest.raises(LostError, match="another scenario, or another version"):
        await joined(identities, port, 2, said=hello(2, scenario="b" * 64))


async def with_other_rows(identities: Path, port: int) -> None:
    with pytest.raises(LostError, match="client-2 trains or tests on other rows"):
        await joined(identities, port, 2, said=hello(2, rows="b" * 64))


async def first_frame(identities: Path, port: int, data: bytes) -> None:
    context = client_context(identities / "ours" / "client-2")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host_of(0))
    writer.write(data)
    with suppress(OSError, ssl.SSLError):
        await asyncio.wait_for(reader.read(), 10)
    writer.close()


async def with_an_oversized_greeting(identities: Path, port: int) -> None:
    await first_frame(identities, port, HEAD.pack(MOST_BYTES + 1, CONTROL))


async def with_a_message_first(identities: Path, port: int) -> None:
    await first_frame(identities, port, frame(TIMED, b"early"))


async def with_another_control_message_first(identities: Path, port: int) -> None:
    await first_frame(identities, port, frame(CONTROL, packed(Counted(updates=1))))


async def half_open(identities: Path, port: int) -> None:
    """A thousand connections that never say a word."""
    opened = []
    for count in range(1_000):
        each = socket.socket()
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", port))
        opened.append(each)
        if count % 20 == 0:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    for each in opened:
        each.close()


ATTACKS = [
    garbage, without_certificate, of_another_authority, expired, as_another_party, as_a_stranger, a_second_time,
    with_another_scenario,
        with_other_rows, with_an_oversized_greeting, with_a_message_first, with_another_control_message_first,
    half_open,
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_who_does_not_belong_is_refused_and_the_others_go_on(
    attack: Callable[[Path, int], Awaitable[None]], identities: Path, loop: asyncio.AbstractEventLoop
) -> None:
    async def story() -> None:
        gate, port = await gate_of(identities)
        one = await joined(identities, port, 1)
        control, lost, _ = attending(one)
        await attack(identities, port)
        assert gate.channels.keys() == {1}
        gate.channels[1].control(Counted(updates=7))
        await until(lambda: control == [Counted(updates=7)])
        two = await joined(identities, port, 2)
        await gate.all_here(5.0)
        assert lost == []
        await two.close()
        await one.close()
        await gate.close()

    loop.run_until_complete(story())


def test_connections_beyond_the_limit_are_closed_before_any_handshake(
    identities: Path, loop: asyncio.AbstractEventLoop
) -> None:
    async def story() -> None:
        gate, port = await gate_of(identities)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_STRANGERS)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), 2.0) == b""
        assert gate.refused["127.0.0.1", "too many connections that have not shown who they are"] == 1
        for _, each in [*silent, (reader, writer)]:
            each.close()
        one = await joined(identities, port, 1)
        assert gate.channels.keys() == {1}
        await one.close()
        await gate.close()

    loop.run_until_complete(story())


def test_of_two_connections_of_one_party_at_once_one_is_taken(
    identities: Path, loop: asyncio.AbstractEventLoop
) -> None:
    async def story() -> None:
        gate, port = await gate_of(identities)
        both = await asyncio.gather(*(joined(identities, port, 1) for _ in range(2)), return_exceptions=True)
        (taken,) = [each for each in both if isinstance(each, Channel)]
        (refused,) = [each for each in both if isinstance(each, LostError)]
        assert "client-1 is connected already" in str(refused)
        control, lost, _ = attending(taken)
        gate.channels[1].control(Counted(updates=7))
        await until(lambda: control == [Counted(updates=7)])
        assert lost == []
        await taken.close()
        await gate.close()

    loop.run_until_complete(story())


def test_a_party_that_does_not_read_is_lost_before_it_fills_the_memory(
    identities: Path, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "MOST_WAITING", 2**20)

    async def story() -> None:
        gate, port = await gate_of(identities)
        one = await joined(identities, port, 1)
        await until(lambda: 1 in gate.channels)
        _, lost, _ = attending(gate.channels[1])
        one._writer.transport.pause_reading()  # type: ignore[attr-defined]  # a slow reader
        for _ in range(1_000):
            gate.channels[1].message(b"x" * 2**16, timed=True)
            await asyncio.sleep(0)
            if lost:
                break
        assert "client-1 does not read" in lost[0].what
        await one.close()
        await gate.close()

    loop.run_until_complete(story())


def test_a_refusal_is_logged_once_for_an_address_and_a_reason(
    identities: Path, loop: asyncio.AbstractEventLoop, logged: list[str]
) -> None:
    async def story() -> None:
        gate, port = await gate_of(identities)
        for _ in range(3):
            with pytest.raises(LostError):
                await joined(identities, port, 3)
        assert list(gate.refused.values()) == [3]
        await gate.close()

    loop.run_until_complete(story())
    assert logged == ["refused a connection from 127.0.0.1: client-3 takes no part in this scenario"]


def test_frames_arrive_whole_and_in_order_and_their_bytes_are_counted(
    identities: Path, loop: asyncio.AbstractEventLoop
) -> None:
    async def story() -> None:
        gate, port = await gate_of(identities)
        one = await joined(identities, port, 1)
        await until(lambda: 1 in gate.channels)
        _, _, messages = attending(gate.channels[1])
        bodies = [b"", b"x" * MOST, b"last"]
        before = one.sent
        for place, body in enumerate(bodies):
            one.message(body, timed=place != 1)
        await until(lambda: len(messages) == 3)
        assert messages == [(True, b""), (False, b"x" * MOST), (True, b"last")]
        assert one.sent - before == sum(HEAD.size + len(body) for body in bodies)
        await one.close()
        await gate.close()

    loop.run_until_complete(story())


@pytest.mark.parametrize(
    "data",
    [
        HEAD.pack(MOST + 1, TIMED),
        HEAD.pack(MOST_BYTES + 1, CONTROL),
        HEAD.pack(3, 9) + b"abc",
        frame(CONTROL, b"{}"),
        struct.pack("<IB", 2**32 - 1, TIMED),
    ],
)
def test_a_frame_that_is_not_allowed_ends_the_connection_and_names_the_party(
    data: bytes, identities: Path, loop: asyncio.AbstractEventLoop
) -> None:
    async def story() -> None:
        gate, port = await gate_of(identities)
        one = await joined(identities, port, 1)
        await until(lambda: 1 in gate.channels)
        _, lost, messages = attending(gate.channels[1])
        one._writer.write(data)
        await until(lambda: bool(lost))
        assert "client-1 sent what cannot be used" in lost[0].what
        assert messages == []
        await one.close()
        await gate.close()

    loop.run_until_complete(story())


def test_a_party_that_gives_no_sign_of_life_is_lost_and_one_that_does_is_not(
    identities: Path, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "BEAT_S", 0.05)

    async def story() -> None:
        gate, port = await gate_of(identities, timeout=1.0)
        one, two = await joined(identities, port, 1), await joined(identities, port, 2)
        await gate.all_here(5.0)
        silent, alive = attending(gate.channels[1])[1], attending(gate.channels[2])[1]
        one._tasks[1].cancel()  # as in a frozen process
        await until(lambda: bool(silent))
        assert "client-1 gave no sign of life" in silent[0].what
        assert alive == []
        for each in (one, two):
            await each.close()
        await gate.close()

    loop.run_until_complete(story())


def test_few_control_messages_wait_for_somebody_who_attends(identities: Path, loop: asyncio.AbstractEventLoop) -> None:
    async def story() -> None:
        gate, port = await gate_of(identities)
        one, two = await joined(identities, port, 1), await joined(identities, port, 2)
        await gate.all_here(5.0)
        for number in range(MOST_EARLY + 10):
            one.control(Refused(why="x" * 8_000))
            if number < MOST_EARLY:
                two.control(Counted(updates=number))
        await until(lambda: gate.channels[1].lost is not None)
        assert "client-1 sent what cannot be used: 65 control messages before a run" in str(gate.channels[1].lost)
        assert sum(len(packed(each)) for each in gate.channels[1]._early) < MOST_EARLY * MOST_BYTES
        control, lost, _ = attending(gate.channels[2])
        await until(lambda: len(control) == MOST_EARLY)
        assert lost == []
        for each in (one, two):
            await each.close()
        await gate.close()

    loop.run_until_complete(story())


def test_a_lost_connection_is_told_also_to_who_attends_later(identities: Path, loop: asyncio.AbstractEventLoop) -> None:
    async def story() -> None:
        gate, port = await gate_of(identities)
        one = await joined(identities, port, 1)
        await until(lambda: 1 in gate.channels)
        await one.close()
        await until(lambda: gate.channels[1].lost is not None)
        _, lost, _ = attending(gate.channels[1])
        assert [error.what for error in lost] == ["the connection to client-1 ended"]
        await gate.close()

    loop.run_until_complete(story())


def test_clients_that_do_not_come_are_named(identities: Path, loop: asyncio.AbstractEventLoop) -> None:
    async def story() -> None:
        gate, port = await gate_of(identities)
        one = await joined(identities, port, 1)
        with pytest.raises(LostError, match=r"^client-2 did not connect within 0 s"):
            await gate.all_here(0.2)
        await one.close()
        await gate.close()

    loop.run_until_complete(story())
