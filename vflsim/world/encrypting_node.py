"""A node whose party encrypts what it sends and decrypts what it gets: its processor takes the time of the codec."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast
from weakref import WeakSet

from vflsim.codecs.encryption import Encryption, encrypts, scheme_of
from vflsim.learning.execution.operations import Handle, Operation, nothing
from vflsim.world.messages import Message
from vflsim.world.node import Node


def encrypting(node: Node) -> Node:
    """Return the node that a party gets: where the codec encrypts, one whose verbs take the time of it."""
    return cast(Node, _EncryptingNode(node)) if encrypts(node.shared.wires.codec) else node


class _EncryptingNode:
    """Stands before a node, of whichever world: a tensor is encrypted before it is sent first, by an operation.

    Verbs of ``free`` nodes take no time, so that evaluations outside time encrypt nothing.
    """

    def __init__(self, node: Node) -> None:
        self._node, self._codec = node, node.shared.wires.codec
        self._encrypted: WeakSet[Handle[Any]] = WeakSet()
        """The tensors that are ciphertexts already: sent before, or passed on as they came."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def worker(self) -> Node:
        """Return the same party with a processor of its own, which knows the same ciphertexts."""
        twin = _EncryptingNode(self._node.worker())
        twin._encrypted = self._encrypted
        return cast(Node, twin)

    async def send(self, to: int | str, message: Message) -> None:
        """Encrypt, and send."""
        await self._encrypt(to, message)
        await self._node.send(to, message)

    async def upload(self, to: int | str, message: Message) -> None:
        """Encrypt, wait for the upload delay, and send."""
        await self._encrypt(to, message)
        await self._node.upload(to, message)

    async def recv(self, *args: Any, **kwargs: Any) -> Message:
        """Receive a message, and decrypt it."""
        message = await self._node.recv(*args, **kwargs)
        await self._decrypt([message])
        return message

    async def gather(self, *args: Any, **kwargs: Any) -> list[Message]:
        """Receive messages, and decrypt them, one after the other."""
        messages = await self._node.gather(*args, **kwargs)
        await self._decrypt(messages)
        return messages

    async def _encrypt(self, to: int | str, message: Message) -> None:
        scheme = scheme_of(self._codec, self._node.state.receiver(to, message))
        if scheme is None:
            return
        new = [handle for handle in message.carried.values() if handle not in self._encrypted]
        self._encrypted.update(new)
        if count := _ciphertexts(scheme, new):
            await self._node.compute(self._operation("encrypt", scheme.seconds(encrypted=count)))

    async def _decrypt(self, messages: Iterable[Message]) -> None:
        scheme = scheme_of(self._codec, self._node.state.number)
        if scheme is None:
            return
        came = [handle for message in messages for handle in message.carried.values()]
        self._encrypted.update(came)
        if count := _ciphertexts(scheme, came):
            await self._node.compute(self._operation("decrypt", scheme.seconds(decrypted=count)))

    def _operation(self, kind: str, seconds: float) -> Operation[None]:
        return Operation(kind, self._node.state.number, nothing, None, seconds=seconds, inputs=())


def _ciphertexts(scheme: Encryption, handles: Iterable[Handle[Any]]) -> int:
    return sum(scheme.ciphertexts(math.prod(each.shape)) for each in handles if each.dtype.is_floating_point)
