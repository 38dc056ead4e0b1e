"""Connections between clients: each speaks for itself, strangers are refused, and the others go on."""

import asyncio
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from vflsim.errors import RunError
from vflsim.remote.channel import LostError, connected
from vflsim.remote.control import Hello, Joined, Peer, packed
from vflsim.remote.frames import CONTROL, frame
from vflsim.remote.keys import host_of
from vflsim.remote.mesh import Mesh

DIGEST, MOST = "a" * 64, 10_000
FIRST, SECOND = Joined(protocol="coded", seed=0), Joined(protocol="coded", seed=1)
Seen = list[tuple[int, bool, bytes]]


def hello(party: int) -> Hello:
    return Hello(party=party, scenario=DIGEST, rows=DIGEST, version="1", machine="here")


class World:
    """Three clients, each with its mesh, in one loop."""

    def __init__(self, identities: Path, timeout: float = 5.0) -> None:
        self.keys, self.timeout = identities / "ours", timeout
        self.meshes = {party: self.mesh(party) for party in (1, 2, 3)}
        self.seen: dict[int, Seen] = {party: [] for party in self.meshes}
        self.lost: dict[int, list[RunError]] = {party: [] for party in self.meshes}

    def mesh(self, party: int) -> Mesh:
        return Mesh(self.keys / f"client-{party}", hello(party), 3, MOST, self.timeout)

    async def open(self) -> None:
        for mesh in self.meshes.values():
            await mesh.open("127.0.0.1", 0)

    def places(self, party: int) -> dict[int, Peer]:
        others = {other: mesh for other, mesh in self.meshes.items() if other != party}
        return {other: Peer(party=other, host="127.0.0.1", port=mesh.port, facts={}) for other, mesh in others.items()}

    async def join(self, run: Joined, *parties: int, returning: frozenset[int] = frozenset()) -> None:
        parties = parties or tuple(self.meshes)
        await asyncio.gather(*(self.meshes[party].join(self.places(party), run, returning) for party in parties))
        for party in parties:
            self.attend(party)

    def attend(self, party: int) -> None:
        seen = self.seen[party]
        self.meshes[party].attend(lambda *each, seen=seen: seen.append(each), self.lost[party].append)

    async def come_back(self, party: int, **away: bool) -> frozenset[int]:
        """Have a new process take the place of a client's; return whom it has not reached."""
        self.meshes[party] = mesh = self.mesh(party)
        await mesh.open("127.0.0.1", 0)
        places = self.places(party)
        if 3 in places:
            places[3] = places[3].model_copy(update=away)
        unreached = await mesh.join(places, FIRST, frozenset({3}), again=True)
        self.attend(party)
        return unreached

    async def close(self) -> None:
        for mesh in self.meshes.values():
            await mesh.close()


def told(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


async def until(seen: list[Any], count: int) -> None:
    async with asyncio.timeout(20):
        while len(seen) < count:
            await asyncio.sleep(0.005)


async def without_certificate(world: World, port: int) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(world.keys / "client-2" / "authority.pem")
    with suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host_of(1))
        writer.write(frame(CONTROL, packed(hello(3))))
        with suppress(OSError, ssl.SSLError):
            assert await reader.read() == b""
        writer.close()


async def refused(world: World, port: int, folder: str, said: Hello, why: str) -> None:
    with pytest.raises(LostError, match=why):
        await connected("127.0.0.1", port, world.keys.parent / folder, said, MOST, 2.0, peer=1)


async def of_another_authority(world: World, port: int) -> None:
    await refused(world, port, "theirs/client-3", hello(3), "client-1 at .* has no certificate of this authority")


async def in_the_name_of_another(world: World, port: int) -> None:
    await refused(world, port, "ours/client-2", hello(3), "a greeting of client-3 with the certificate of client-2")


async def as_the_server(world: World, port: int) -> None:
    await refused(world, port, "ours/server", hello(0), "client-1 refuses server: server takes no part")


async def as_a_stranger(world: World, port: int) -> None:
    await refused(world, port, "ours/client-4", hello(4), "client-4 takes no part in this scenario")


async def a_second_time(world: World, port: int) -> None:
    await refused(world, port, "ours/client-2", hello(2), "client-2 is connected already")


@pytest.mark.parametrize(
    "attack",
    [without_certificate, of_another_authority, in_the_name_of_another, as_the_server, as_a_stranger, a_second_time],
)
def test_who_does_not_belong_is_refused_at_a_clients_port_and_the_run_goes_on(attack: Any, identities: Path) -> None:
    async def story() -> None:
        world = World(identities)
        await world.open()
        await world.join(FIRST)
        await attack(world, world.meshes[1].port)
        for sender, receiver in ((1, 2), (2, 1), (3, 1), (2, 3)):
            world.meshes[sender].send(receiver, b"%d%d" % (sender, receiver), timed=sender != 3)
        await until(world.seen[1], 2)
        await until(world.seen[2], 1)
        await until(world.seen[3], 1)
        assert sorted(world.seen[1]) == [(2, True, b"21"), (3, False, b"31")]
        assert (world.seen[2], world.seen[3]) == ([(1, True, b"12")], [(2, True, b"23")])
        assert not any(world.lost.values())
        await world.close()

    told(story())


def test_a_client_that_is_sent_to_another_ones_port_does_not_take_it_for_the_one(identities: Path) -> None:
    async def story() -> None:
        world = World(identities, timeout=1.0)
        await world.open()
        swapped = world.places(3)
        swapped[1] = swapped[1].model_copy(update={"port": swapped[2].port})
        with pytest.raises(RunError, match=r"client-1 at .* has no certificate of this authority for it"):
            await world.meshes[3].join(swapped, FIRST)
        await world.close()

    told(story())


def test_what_was_sent_in_one_run_is_not_read_in_the_next(identities: Path) -> None:
    async def story() -> None:
        world = World(identities)
        await world.open()
        await world.join(FIRST)
        world.meshes[2].leave()  # its run is over, but not that of client 1
        world.meshes[1].send(2, b"late", timed=True)
        await world.join(SECOND)
        world.meshes[1].send(2, b"new", timed=True)
        await until(world.seen[2], 1)
        assert world.seen[2] == [(1, True, b"new")]
        await world.close()

    told(story())


def test_a_client_that_does_not_come_or_is_lost_is_named(identities: Path) -> None:
    async def story() -> None:
        world = World(identities, timeout=0.3)
        await world.open()
        with pytest.raises(RunError, match="client-3 did not connect within 0 s"):
            await world.join(FIRST, 1, 2)
        await world.close()
        world = World(identities)
        await world.open()
        await world.join(FIRST)
        await world.meshes[3].close()
        await until(world.lost[1], 1)
        assert world.lost[1][0].what == "the connection to client-3 ended"
        assert not isinstance(world.lost[1][0], LostError), "the server is not lost: the client stays"
        with pytest.raises(RunError, match="the connection to client-3 ended"):
            await world.meshes[1].join(world.places(1), SECOND)
        await world.close()

    told(story())


def test_a_frame_that_is_larger_than_any_message_between_clients_ends_the_connection(identities: Path) -> None:
    async def story() -> None:
        world = World(identities)
        await world.open()
        await world.join(FIRST)
        world.meshes[2].send(1, bytes(MOST + 1), timed=True)
        await until(world.lost[1], 1)
        assert f"client-2: a frame of type 1 and {MOST + 1} bytes" in world.lost[1][0].what
        assert world.seen[1] == []
        await world.close()

    told(story())


@pytest.mark.parametrize("party", [1, 2, 3])
def test_a_client_that_comes_back_is_connected_to_all_others_both_ways(party: int, identities: Path) -> None:
    async def story() -> None:
        world = World(identities)
        await world.open()
        await world.join(FIRST, returning=frozenset({party}))
        await world.meshes[party].close()
        others = [other for other in world.meshes if other != party]
        world.meshes[others[0]].send(party, b"lost", timed=True)
        assert await world.come_back(party) == frozenset()
        await a_second_time(world, world.meshes[1].port)
        await as_the_server(world, world.meshes[1].port)
        for other in others:
            world.meshes[other].send(party, b"to", timed=True)
            world.meshes[party].send(other, b"from", timed=True)
        await until(world.seen[party], 2)
        for other in others:
            await until(world.seen[other], 1)
            assert world.seen[other] == [(party, True, b"from")]
        assert sorted(world.seen[party]) == [(other, True, b"to") for other in others]
        assert not any(world.lost.values())
        for mesh in world.meshes.values():
            mesh.leave()
        await world.join(SECOND)
        await world.close()

    told(story())


def test_one_that_comes_back_connects_to_none_that_is_away_and_names_whom_it_cannot_reach(identities: Path) -> None:
    async def story() -> None:
        world = World(identities, timeout=3.0)
        await world.open()
        await world.join(FIRST, returning=frozenset({2, 3}))
        for party in (2, 3):
            await world.meshes[party].close()
        assert await world.come_back(2, here=False) == frozenset()
        world.meshes[2].send(3, b"lost", timed=True)
        await world.meshes[2].close()
        assert await world.come_back(2) == {3}
        world.meshes[2].away(3)
        assert await world.come_back(3) == frozenset()
        world.meshes[2].back(3)
        world.meshes[2].send(3, b"here", timed=True)
        await until(world.seen[3], 1)
        await world.close()

    told(story())


@pytest.mark.parametrize("word", [True, False])
def test_a_lost_connection_to_a_client_that_may_return_ends_the_run_unless_the_server_says_that_it_is_away(
    word: bool, identities: Path
) -> None:
    async def story() -> None:
        world = World(identities, timeout=0.3)
        await world.open()
        await world.join(FIRST, returning=frozenset({3}))
        if word:
            world.meshes[1].away(3)
        await world.meshes[3].close()
        await until(world.lost[2], 1)
        assert world.lost[2][0].what == "the connection to client-3 ended"
        await asyncio.sleep(0.3)
        assert len(world.lost[1]) == (0 if word else 1)
        world.meshes[1].back(3)
        await until(world.lost[1], 1)
        await world.close()

    told(story())
