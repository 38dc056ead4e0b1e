"""A server that departs from the protocol, and the honest client 1 that it has to do with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from tiny_worlds import raw

from vflsim.errors import VflsimError
from vflsim.learning.batches import BatchSequence
from vflsim.learning.execution.operations import Handle, ImmediateExecutor
from vflsim.learning.privacy.blinding import public_key
from vflsim.remote.admission import Admission
from vflsim.remote.channel import Channel, LostError
from vflsim.remote.client import LiveClient
from vflsim.remote.control import Bye, Control, Done, Prepare, Ready, Start, Stopped, Written, packed
from vflsim.remote.frames import CONTROL, LiveWires, Reader, frame, kinds_of, pack_message
from vflsim.remote.keys import VouchedRun, make_identities, vouch
from vflsim.remote.private_data import PrivateData, common, digest_of
from vflsim.remote.world import machine, precise_loop
from vflsim.scenario import load
from vflsim.scenario.resolve import setting
from vflsim.streams import SERVER, SHARED
from vflsim.world.messages import EvaluationRequest, Message

LONG_S = 300.0
"""More than anything here takes on a busy machine."""
NOISE: dict[str, Any] = {"kind": "gaussian", "clip": 1, "delta": 1e-5, "noise_multiplier": 4}
BLINDED: dict[str, Any] = {"kind": "synchronous", "blinding": "on", "models": {"aggregate": "mean"}}
FREE: dict[str, Any] = {"network": {"kind": "dedicated"}}
"""Nothing takes time but what the machine takes."""


def world_of(
    protocol: dict[str, Any], clients: int = 2, more: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """Return a tiny scenario of a protocol, ``only``, and perhaps of others, in which nothing takes time."""
    usual = {"timing": FREE, "stop": {"rounds": 50}, "evaluate": {"every": "5 rounds"}}
    said = raw({"only": protocol, **(more or {})}, **{**usual, **changes})
    said["partition"]["clients"] = clients
    return said


class EvilServer:
    """The server's certificate in wrong hands; client 1 runs in a thread, all others are the server's own.

    ``heard`` are the control messages of the client, ``messages`` what it has sent in the protocol.
    """

    def __init__(self, folder: Path, said: dict[str, Any]) -> None:
        self.folder = folder
        self.scenario = load(said)
        make_identities(folder / "keys", clients=self.scenario.clients)
        self.data = PrivateData(self.scenario, SERVER)
        self.resolved = setting(self.scenario, "only", self.data.of("only"))
        protocol = self.scenario.protocols["only"].protocol
        self.sequence: BatchSequence = protocol.batch_plan().batches(self.resolved.data.rows, self.resolved.training, 0)
        self.wires = LiveWires(self.resolved.codec, ImmediateExecutor())
        module = type(protocol).__module__
        places = frozenset({SERVER, *self.resolved.clients})
        self._reader = Reader(
            kinds_of({module, module.rpartition(".")[0] + ".messages"}), {SHARED: self.sequence},
            self.resolved.data.rows, places, self.wires,
        )  # fmt: skip
        self.loop = precise_loop()
        self.heard: list[Control] = []
        self.messages: list[Message] = []
        self._threads = ThreadPoolExecutor(1)
        self._start_gate()

    def _start_gate(self) -> None:
        keys = self.folder / "keys"
        self.gate = Admission(keys / "server", frozenset({1}), common(self.scenario, self.data), 2**24, LONG_S)
        port = self.loop.run_until_complete(self.gate.open("127.0.0.1", 0))
        client = LiveClient(self.scenario, 1, "127.0.0.1", port, keys / "client-1", self.folder / "parts", LONG_S)
        self.client: Future[None] = self._threads.submit(client.play)
        self.loop.run_until_complete(self.gate.all_here(LONG_S))
        self.channel: Channel = self.gate.channels[1]
        self.lost: list[LostError] = []
        self.channel.attend(self.heard.append, self.lost.append, self._came)

    def again(self) -> None:
        """Cut the connection, and let the client's owner start its process once more, with the same folders."""
        self.loop.run_until_complete(self.gate.close())
        assert isinstance(self.client.exception(LONG_S), LostError)
        self.heard.clear()
        self.messages.clear()
        self._start_gate()

    def end_run(self) -> None:
        """End the run, and wait until the client has written its part."""
        self.tell(Stopped(reason="rounds"), Done())
        self.until(lambda: bool(self.of(Written)))

    def _came(self, _timed: bool, body: bytes) -> None:
        self.messages.append(self._reader.message(body, 1, SERVER)[0])

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds; fail if the client ends first."""

        async def wait() -> None:
            async with asyncio.timeout(LONG_S):
                while not condition():
                    assert not self.client.done(), self.client.exception()
                    await asyncio.sleep(0.002)

        self.loop.run_until_complete(wait())

    def tell(self, *messages: Control) -> None:
        """Send control messages."""
        for message in messages:
            self.channel.control(message)

    def tell_at_once(self, *messages: Control) -> None:
        """Send control messages that arrive together."""
        self.channel._writer.write(b"".join(frame(CONTROL, packed(message)) for message in messages))

    def send(self, message: Message, timed: bool = True, sender: int = SERVER) -> None:
        """Send a message of the protocol."""
        message.sender, message.receiver = sender, 1
        self.channel.message(pack_message(message, self.wires, 0.0), timed)

    def prepare(self, run: str = "0" * 16, **said: Any) -> None:
        """Announce a run, and wait until the client is ready."""
        known = len(self.of(Ready))
        self.tell(Prepare(**{"protocol": "only", "seed": 0, "run": run, **said}))
        self.until(lambda: len(self.of(Ready)) > known)

    def start(self, **said: Any) -> None:
        """Start the run at once."""
        self.tell(Start(**{"in_s": 0.0, "at": self.loop.time(), "machine": machine(), **said}))

    def begin(self) -> None:
        """Bring the client to its first embedding, without blinding."""
        self.prepare()
        self.start()
        self.until(lambda: bool(self.messages))

    def vouch_for_others(self) -> list[bytes]:
        """Vouch for keys of the other clients; return the public keys of all, in client order, the client's first."""
        (ready,) = self.of(Ready)
        assert ready.voucher is not None
        keys = [bytes.fromhex(ready.voucher.key)]
        run = VouchedRun(digest_of(self.scenario), "only", 0)
        for other in self.resolved.clients[1:]:
            keys.append(public_key(bytes([other]) * 32))
            self.tell(vouch(self.folder / "keys" / f"client-{other}", run, other, keys[-1]))
        return keys

    def ask(self, number: int) -> None:
        """Send the request of an evaluation."""
        self.send(EvaluationRequest(round=number), timed=False)

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the client's control messages of a kind."""
        return [each for each in self.heard if isinstance(each, kind)]

    def refused(self, within: Callable[[], bool] = lambda: False) -> str:
        """Return the error with which the client ends; fail if something that it must not do comes first."""

        async def wait() -> None:
            async with asyncio.timeout(LONG_S):
                while not self.client.done():
                    assert not within(), "the client has done it"
                    await asyncio.sleep(0.002)

        self.loop.run_until_complete(wait())
        error = self.client.exception()
        assert isinstance(error, VflsimError), error
        return str(error)

    def ended(self) -> BaseException | None:
        """Wait for the client to end; return its error."""

        async def wait() -> None:
            async with asyncio.timeout(LONG_S):
                while not self.client.done():
                    await asyncio.sleep(0.002)

        self.loop.run_until_complete(wait())
        return self.client.exception()

    def close(self) -> None:
        """End the client, if it has not ended, and the server; nothing if it has ended."""
        if self.loop.is_closed():
            return
        self.tell(Done(), Bye())
        self.ended()
        self.loop.run_until_complete(self.gate.close())
        self.loop.close()
        self._threads.shutdown()


def ready_value(value: torch.Tensor) -> Handle[Any]:
    """Return a handle of a tensor."""
    handle: Handle[Any] = Handle(tuple(value.shape), value.dtype)
    handle.set(value)
    return handle
