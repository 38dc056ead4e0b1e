"""Bytes on the wire, counted between client and server: what a run records, and the stated overhead."""

import asyncio
import json
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import RANDOM_TIMING, raw

from vflsim.remote import channel as channels
from vflsim.remote.admission import Admission
from vflsim.remote.channel import Channel, connected
from vflsim.remote.control import Common, Hello
from vflsim.remote.frames import HEAD, TIMED
from vflsim.remote.keys import make_identities
from vflsim.remote.server import LiveServer
from vflsim.scenario import load

RECORD, OVER = 16_384, 22
"""The largest TLS record, and what one adds: a head of 5 bytes, a type of 1 and a tag of 16."""
OUTER = struct.Struct("<d ii H BB")


class Proxy:
    """Passes bytes on between one client and the server, and counts them: ``up`` to the server, ``down`` from it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.up = self.down = 0

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._pass(reader, ahead[1], "up"), self._pass(ahead[0], writer, "down"))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        with suppress(OSError):
            while data := await reader.read(2**16):
                setattr(self, way, getattr(self, way) + len(data))
                writer.write(data)
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def sealed(size: int) -> int:
    """The bytes on the wire of so many bytes that are written at once."""
    return size + OVER * -(-size // RECORD)


def test_a_frame_adds_a_head_and_a_seal_for_each_16_kib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "BEAT_S", 1_000.0)
    make_identities(tmp_path / "keys", clients=1)
    sizes = [0, 1, RECORD - HEAD.size, RECORD, 5 * RECORD, 100_000]

    async def story() -> None:
        gate = Admission(tmp_path / "keys" / "server", frozenset({1}), Common("a" * 64, "b" * 64, "1"), 2**20, 60.0)
        proxy = Proxy(await gate.open("127.0.0.1", 0))
        port = await proxy.open()
        hello = Hello(party=1, scenario="a" * 64, rows="b" * 64, version="1", machine="here")
        client = await connected("127.0.0.1", port, tmp_path / "keys" / "client-1", hello, 2**20, 60.0)
        await gate.all_here(5.0)
        server = gate.channels[1]
        for sender, receiver, way in ((client, server, "up"), (server, client, "down")):
            came: list[int] = []
            receiver.attend(lambda _: None, lambda _: None, lambda _timed, body, came=came: came.append(len(body)))  # type: ignore[misc]
            await asyncio.sleep(0.1)  # all that belongs to the handshake has passed
            before = getattr(proxy, way)
            for size in sizes:
                sender.message(bytes(size), timed=True)
                await asyncio.sleep(0.01)  # a write of its own
            async with asyncio.timeout(10):
                while len(came) < len(sizes):
                    await asyncio.sleep(0.01)
            assert getattr(proxy, way) - before == sum(sealed(HEAD.size + size) for size in sizes)
        await client.close()
        await gate.close()
        await proxy.close()

    asyncio.run(story())


@pytest.fixture
def loop_beside() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.slow
def test_a_proxy_counts_what_the_run_records_and_the_stated_overhead(
    tmp_path: Path, loop_beside: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    lossy = {"kind": "c_vfl", "codec": {"kind": "scalar_quantiser", "bits": 4}}
    said = raw({"wait": {"kind": "synchronous"}, "lossy": lossy}, timing=RANDOM_TIMING, stop={"rounds": 4})
    said["partition"]["clients"] = 2
    file = tmp_path / "scenario.yaml"
    file.write_text(json.dumps(said))
    make_identities(tmp_path / "keys", clients=2)
    frames: dict[str, list[int]] = {"up": [], "down": []}  # of all kinds, whole
    recorded: Counter[tuple[str, int]] = Counter()
    taken, sent = Channel._take, Channel._send

    def note(way: str, kind: int, body: bytes) -> None:
        frames[way].append(HEAD.size + len(body))
        if (kind == TIMED and way == "up") or (kind == TIMED and b"evaluat" not in body[:120]):
            _, _, _, count, tensors, fields = OUTER.unpack_from(body)
            recorded[way, kind] += len(body) - OUTER.size - 4 * count - tensors - 8 * fields

    def take(self: Any, kind: int, body: bytes) -> None:
        note("up", kind, body)
        taken(self, kind, body)

    def send(self: Any, kind: int, body: bytes) -> None:
        note("down", kind, body)
        sent(self, kind, body)

    monkeypatch.setattr(Channel, "_take", take)
    monkeypatch.setattr(Channel, "_send", send)
    server = LiveServer(load(file), tmp_path / "keys" / "server", tmp_path / "parts", timeout=60.0)
    port = server.open("127.0.0.1", 0)
    proxies = [Proxy(port) for _ in range(2)]
    clients = []
    try:
        for number, proxy in enumerate(proxies, start=1):
            place = asyncio.run_coroutine_threadsafe(proxy.open(), loop_beside).result()
            clients.append(subprocess.Popen([
                sys.executable, "-m", "vflsim", "party", str(file), "--party", str(number), "--connect",
                f"127.0.0.1:{place}", "--identity", str(tmp_path / "keys" / f"client-{number}"), "--parts",
                str(tmp_path / "parts"), "--timeout", "60",
            ]))  # fmt: skip
        server.wait(within=120.0)
        for name in ("wait", "lossy"):
            recorded.clear()
            outcome = server.run(name, seed=0)
            assert outcome.error is None
            last = outcome.tables.metrics
            assert (recorded["up", TIMED], recorded["down", TIMED]) == tuple(
                int(last[name][-1].as_py()) for name in ("bytes_up", "bytes_down")
            ), name
    finally:
        server.close()
        for client in clients:
            client.wait(60)
        for proxy in proxies:
            asyncio.run_coroutine_threadsafe(proxy.close(), loop_beside).result()
    assert [client.returncode for client in clients] == [0, 0]
    for way in ("up", "down"):
        wired, written = sum(getattr(proxy, way) for proxy in proxies), sum(frames[way])
        records = sum(-(-size // RECORD) for size in frames[way])
        handshakes = wired - written - OVER * records
        assert 2 * 1_000 < handshakes < 2 * 6_000, (way, handshakes)
