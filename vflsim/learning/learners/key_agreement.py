"""The operations by which clients that blind their embeddings agree on keys, through the server."""

from __future__ import annotations

from collections.abc import Sequence

from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.privacy.blinding import KEY_BYTES, public_key
from vflsim.vocabulary.on_demand import Tensor, dtype, torch


def make_public_key(learner: PartyLearner) -> Operation[Handle[Tensor]]:
    """Client: compute its public key, a handle of 32 bytes."""
    key, blinder = learner.promise(KEY_BYTES, dtype=dtype("uint8")), learner.blinder

    def run() -> None:
        assert blinder is not None, "the client blinds its embeddings"
        key.set(torch.frombuffer(bytearray(public_key(blinder.private)), dtype=torch.uint8))

    return learner.operation("public_key", run, key)


def join_keys(learner: PartyLearner, messages: Sequence[Received]) -> Operation[Handle[Tensor]]:
    """Server: put the clients' public keys together, in client order: a handle of (clients, 32) bytes."""
    keys = [message.value for message in sorted(messages, key=lambda message: message.sender)]
    joined = learner.promise(len(keys), KEY_BYTES, dtype=dtype("uint8"))
    return learner.operation(
        "join_keys", lambda: joined.set(torch.stack([key.value for key in keys])), joined, inputs=keys
    )


def take_keys(learner: PartyLearner, message: Received) -> Operation[None]:
    """Client: take the public keys of all clients, and so agree on a secret with each of them."""
    blinder, keys = learner.blinder, message.value
    assert blinder is not None, "the client blinds its embeddings"

    def commit() -> None:
        blinder.agreed = True

    return learner.operation("take_keys", lambda: blinder.agree(keys.value), None, inputs=[keys], commit=commit)
