"""Blinding (EASTER Eq. 4–6): clients add masks to fixed-point embeddings, and the masks cancel in their sum.

``cryptography`` computes keys and masks. It is imported by the functions that need it, because most runs do not.

EASTER writes the blinding factor of client k as a constant, r_k = Σ_j ±H(CK_kj). Added to every embedding, it drops
out of the difference of two uploads. Here each pair expands its key into new, independent masks for every element of
every message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from vflsim.errors import BlindingError, NonFiniteError, of_extra
from vflsim.streams import few, generator
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.on_demand import Tensor, dtype, torch
from vflsim.vocabulary.quantities import Index

BLINDING_OFF: Literal["off"] = "off"
HEADROOM_BITS = 2
"""Leading bits that a sum of all clients never uses. A sum in which a mask is left over uses them: the guard."""


class Blinding(Part):
    """Clients upload fixed-point embeddings under masks that cancel in the sum over all of them (EASTER Eq. 4–6).

    Example: ``{bits: 64, fraction: 20, missing: skip}``
    """

    bits: Literal[32, 64] = 32
    """Integers are modulo 2^bits, and an element of an upload takes as many bits."""
    fraction: Index = 16
    """Bits after the binary point: an embedding is rounded to a multiple of 2^-fraction."""
    missing: Literal["wait", "skip", "stop"] = "wait"
    """What happens in a round in which the embedding of some client is missing, so that masks are left over: ``wait``
    for it, ``skip`` the round, or ``stop`` the run."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.largest(1)
        return self

    def largest(self, clients: int) -> float:
        """Return the largest magnitude of an element that ``clients`` clients can add up without wrapping around.

        Raises ``ValueError`` if it is below 1.
        """
        integers = (1 << self.bits - 1 - HEADROOM_BITS) // clients
        largest = math.ldexp(integers, -self.fraction)
        if largest < 1:
            most = self.bits - 1 - HEADROOM_BITS - (clients - 1).bit_length()
            many = f"{clients} client{'' if clients == 1 else 's'}"
            raise ValueError(
                f"fraction: {self.fraction} of {self.bits} bits leave embeddings of {many} magnitudes up to "
                f"{largest:g}; allowed: 0 to {most}, for magnitudes of at least 1"
            )
        return largest

    def promise(self, clients: int) -> str:
        """Describe the protection and the range before any run, in words."""
        return (
            f"embeddings blinded: the server sees sums over {clients} clients; {self.bits} bits, {self.fraction} after "
            f"the point, magnitudes up to {self.largest(clients):g}"
        )


class OnOrOff:
    """Annotation: ``on`` is short for the defaults, and ``off`` stays ``off``. YAML 1.1's booleans mean the same."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        serializer = core_schema.plain_serializer_function_ser_schema(_plain)
        return core_schema.no_info_wrap_validator_function(
            _chosen, handler.generate_schema(Blinding), serialization=serializer
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"enum": ["on", "off", True, False]}, handler(schema)]}


def _chosen(value: Any, validate: Callable[[Any], Blinding]) -> Blinding | Literal["off"]:
    if value is False or value == BLINDING_OFF:
        return BLINDING_OFF
    if value is True or value == "on":
        return Blinding()
    if isinstance(value, Mapping | Blinding):
        return validate(value)
    raise ValueError(f"{value!r} says nothing of blinding; allowed: on, off, or a mapping of bits, fraction, missing")


def _plain(value: Blinding | str) -> Any:
    return value.model_dump() if isinstance(value, Blinding) else value


AnyBlinding = Annotated[Blinding | Literal["off"], OnOrOff()]


@dataclass(frozen=True)
class BlindedSum:
    """The sum of the embeddings of ``clients``, of ``dtype``, in the fixed point of ``blinding``.

    ``context`` names what the masks are for, so that no other sum has the same.

    An element h becomes round(2^f h), halves to even. Invariant: the sum of the integers is the sum of the embeddings
    in fixed point, to the bit; nothing ever wraps around unnoticed.
    """

    blinding: Blinding
    clients: tuple[int, ...]
    dtype: torch.dtype
    context: str = ""

    @property
    def uploaded(self) -> torch.dtype:
        """The dtype of an upload: integers modulo 2^bits, as signed ones."""
        return dtype("int32" if self.blinding.bits == 32 else "int64")

    @property
    def largest(self) -> float:
        """The largest magnitude of an element of an embedding."""
        return self.blinding.largest(len(self.clients))

    def encoded(self, h: Tensor) -> NDArray[np.unsignedinteger]:
        """Return round(2^f h) modulo 2^bits, in the shape of ``h``.

        Raises ``NonFiniteError`` for an element that is not finite, and ``BlindingError`` for one above ``largest``.
        """
        values = h.detach().to("cpu", torch.float64)
        magnitude = float(values.abs().max())
        if not math.isfinite(magnitude):
            raise NonFiniteError("an embedding is not finite")
        if magnitude > self.largest:
            raise BlindingError(
                f"an embedding has an element of magnitude {magnitude:g}, and the sum over "
                f"{len(self.clients)} clients could wrap around",
                allowed=f"magnitudes up to {self.largest:g}, with {self.blinding.bits} bits and "
                f"{self.blinding.fraction} after the point",
                remedy="a smaller blinding.fraction, blinding.bits: 64, or a smaller learning rate",
            )
        return (values * 2.0**self.blinding.fraction).round().to(torch.int64).numpy().astype(self._unsigned)

    def masked(self, h: Tensor, mask: NDArray[np.unsignedinteger]) -> Tensor:
        """Return the upload for ``h``: encoded, plus ``mask`` (one element each), on the device of ``h``.

        Raises what ``encoded`` raises.
        """
        blinded = self.encoded(h) + mask.reshape(h.shape)
        return torch.from_numpy(blinded.view(f"i{blinded.itemsize}")).to(h.device)

    def total(self, uploads: Mapping[int, Tensor]) -> Tensor:
        """Return the sum of the embeddings from the ``uploads`` of all clients, by number.

        Raises ``BlindingError`` if a client's upload is missing, or if the sum is larger than embeddings can make it:
        then masks are left over in it.
        """
        missing = [client for client in self.clients if client not in uploads]
        if missing:
            raise BlindingError(
                f"masks are left over in a sum without client {few([str(client) for client in missing])}",
                allowed=f"the uploads of all {len(self.clients)} clients",
                remedy="blinding.missing says what happens in such a round",
            )
        parts = [uploads[client].cpu().numpy().view(self._unsigned) for client in self.clients]
        signed = np.add.reduce(parts, dtype=self._unsigned).view(f"i{self._unsigned.itemsize}")
        decoded = signed.astype(np.float64) * 2.0**-self.blinding.fraction
        if (np.abs(decoded) > self.largest * len(self.clients)).any():
            raise BlindingError(
                "the sum of blinded embeddings is out of range: masks are left over in it, or an upload was changed",
                allowed=f"magnitudes up to {self.largest * len(self.clients):g}",
            )
        return torch.from_numpy(decoded).to(uploads[self.clients[0]].device, self.dtype)

    @property
    def _unsigned(self) -> np.dtype[np.unsignedinteger]:
        return np.dtype(f"u{self.blinding.bits // 8}")


KEY_BYTES = 32
"""The length of private, public and derived keys."""


def private_key(seed: int, party: int) -> bytes:
    """Return the private key of ``party``: 32 bytes of its stream ``blinding.private_key``.

    A seed makes runs reproducible, and everybody who knows it knows the key. A live deployment must draw its private
    keys from the operating system (``os.urandom``).
    """
    words = generator(seed, party, "blinding.private_key").bit_generator.random_raw(KEY_BYTES // 8)
    return words.astype("<u8").tobytes()


def public_key(private: bytes) -> bytes:
    """Return the public key that belongs to ``private``, 32 bytes (EASTER: PK = g^SK)."""
    with of_extra("privacy", "blinding"):
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def shared_secret(private: bytes, public: bytes) -> bytes:
    """Return the secret of the owner of ``private`` and the owner of ``public``, 32 bytes, the same for both.

    Raises ``ValueError`` for a public key with which every secret would be zero.
    """
    with of_extra("privacy", "blinding"):
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))


def derived_key(secret: bytes, info: bytes, salt: bytes | None = None, length: int = KEY_BYTES) -> bytes:
    """Derive a key for the use that ``info`` names from a shared secret: HKDF-SHA256."""
    with of_extra("privacy", "blinding"):
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length, salt, info).derive(secret)


def pair_key(secret: bytes, run: str, kind: str, one: int, other: int) -> bytes:
    """Return the key of two clients for messages of a ``kind`` in a ``run``, from their shared secret; equal for both.

    HKDF's info is ``vflsim/blinding/2/<run>/<kind>/<low>/<high>`` with the numbers of the clients.
    """
    low, high = sorted((one, other))
    return derived_key(secret, f"vflsim/blinding/2/{run}/{kind}/{low}/{high}".encode())


BLOCK_BYTES, BLOCK_OPERATIONS = 64, 976
"""ChaCha20 computes blocks of 64 bytes: 80 quarter rounds of 12 operations on words, and 16 additions (RFC 8439)."""


def chacha20(key: bytes, nonce: bytes, length: int, counter: int = 0) -> bytes:
    """Return ``length`` bytes of the ChaCha20 stream of a 32-byte key and a 12-byte nonce (RFC 8439, Sec. 2.4)."""
    with of_extra("privacy", "blinding"):
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    cipher = Cipher(ChaCha20(key, counter.to_bytes(4, "little") + nonce), mode=None)
    return cipher.encryptor().update(bytes(length))


class Masks:
    """The masks of ``client`` in a ``run``; it shares ``secrets`` (32 bytes each) with the others, by number.

    r_k = Σ_{j>k} PRG_kj − Σ_{j<k} PRG_kj modulo 2^bits (Eq. 5), so Σ_k r_k = 0. PRG_kj is a function of the pair's key
    for the run and a kind of message, and of the message's number. Uploads under one mask would give away their
    difference: a run, kind and number must never be used for two different values.
    """

    def __init__(self, client: int, secrets: Mapping[int, bytes], bits: int, run: str) -> None:
        self._own, self._secrets, self._dtype = client, dict(secrets), np.dtype(f"<u{bits // 8}")
        self._run = run
        self._keys: dict[str, dict[int, bytes]] = {}

    def of(self, kind: str, number: int, count: int) -> NDArray[np.unsignedinteger]:
        """Return the masks of ``count`` elements in message ``number`` ≥ 0 of a ``kind``: one stream per pair."""
        total = np.zeros(count, self._dtype)
        nonce = number.to_bytes(12, "little")
        for other, key in self._keys_for(kind).items():
            stream = np.frombuffer(chacha20(key, nonce, total.nbytes), self._dtype)
            if other > self._own:
                total += stream
            else:
                total -= stream
        return total

    def _keys_for(self, kind: str) -> Mapping[int, bytes]:
        if kind not in self._keys:
            self._keys[kind] = {
                other: pair_key(secret, self._run, kind, self._own, other) for other, secret in self._secrets.items()
            }
        return self._keys[kind]


def mask_operations(elements: int, bits: int, others: int) -> float:
    """Count the integer operations of masking: ChaCha20 blocks and an addition per element for each of ``others``."""
    blocks = -(-elements * bits // (8 * BLOCK_BYTES))
    return float(others * (blocks * BLOCK_OPERATIONS + elements))
