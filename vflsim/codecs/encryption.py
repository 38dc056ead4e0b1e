"""Homomorphic encryption as a cost: bytes of ciphertexts, and times from a table. Nothing is encrypted.

``TIMES`` has what ``vflsim calibrate --encryption`` measured on the machine that ``MEASURED_ON`` names.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from vflsim.codecs.base import Codec, Upward
from vflsim.codecs.frame import Shape, from_raw, raw, raw_bytes
from vflsim.errors import DataError
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.vocabulary.quantities import Seconds

SLOT_BITS = 64
"""The bits of a Paillier plaintext that one value takes: fixed point, with room for sums."""


class CipherTimes(Part):
    """What one ciphertext takes, on one core.

    Example: ``{encrypt: 20 ms, add: 20 us, multiply: 1 ms, decrypt: 6 ms}``
    """

    encrypt: Seconds
    """Encryption of one ciphertext."""
    add: Seconds
    """The sum of two ciphertexts."""
    multiply: Seconds
    """The product of a ciphertext and a number that is known."""
    decrypt: Seconds
    """Decryption of one ciphertext."""


MEASURED_ON = "one core of an AMD EPYC, phe 1.5.0 with gmpy2 2.3.2, TenSEAL 0.3.18"
TIMES: Mapping[tuple[str, int], CipherTimes] = {
    (kind, size): CipherTimes(encrypt=encrypt, add=add, multiply=multiply, decrypt=decrypt)
    for kind, size, encrypt, add, multiply, decrypt in (
        ("paillier", 1024, 0.00186, 7.43e-06, 0.000134, 0.000567),
        ("paillier", 2048, 0.0118, 1.65e-05, 0.0006, 0.00626),
        ("paillier", 3072, 0.0385, 1.89e-05, 0.000855, 0.0118),
        ("paillier", 4096, 0.0821, 3.76e-05, 0.00154, 0.0291),
        ("ckks", 8192, 0.00763, 0.000117, 0.00339, 0.00217),
        ("ckks", 16384, 0.0189, 0.000354, 0.00858, 0.0064),
    )
}


class Encryption(Upward):
    """A homomorphic scheme: its ciphertexts and their times. **Values pass in the clear inside the simulator.**

    The sender's processor encrypts a tensor before it goes, and the receiver's decrypts it when it has come. A payload
    has the bytes of the ciphertexts, and begins with the values themselves: whoever reads it reads them.
    """

    kind: str
    lossless: ClassVar[bool] = True
    times: CipherTimes | None = None
    """What a ciphertext takes at every party; by default the times that vflsim has measured."""

    @model_validator(mode="after")
    def _known_times(self) -> Self:
        if self.times is None and (self.kind, self.cipher_size) not in TIMES:
            known = ", ".join(str(size) for kind, size in TIMES if kind == self.kind)
            raise ValueError(f"no times of {self.kind} {self.cipher_size} are known; allowed: {known}, or `times`")
        return self

    @property
    @abstractmethod
    def cipher_size(self) -> int:
        """What its times depend on: the bits of the key, or the degree of the polynomials."""

    @property
    @abstractmethod
    def values(self) -> int:
        """The most values in one ciphertext."""

    @property
    @abstractmethod
    def ciphertext_bytes(self) -> int:
        """The bytes of one ciphertext."""

    def ciphertexts(self, values: int) -> int:
        """Count the ciphertexts of so many values of one tensor."""
        return -(-values // self.values)

    def seconds(self, *, encrypted: float = 0, added: float = 0, multiplied: float = 0, decrypted: float = 0) -> float:
        """Return what so many operations on ciphertexts take on one core."""
        times = self.times or TIMES[self.kind, self.cipher_size]
        return encrypted * times.encrypt + added * times.add + multiplied * times.multiply + decrypted * times.decrypt

    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count the bytes of the ciphertexts."""
        return self.ciphertexts(raw_bytes(shape, dtype) // dtype.itemsize) * self.ciphertext_bytes

    def pack(self, x: Tensor) -> bytes:
        """Return the tensor's memory, in as many bytes as the ciphertexts would have."""
        return raw(x).ljust(self.payload_bytes(tuple(x.shape), x.dtype), b"\0")

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Restore the tensor bit for bit."""
        if len(payload) != (expected := self.payload_bytes(shape, dtype)):
            raise DataError(f"{len(payload)} bytes of ciphertexts for shape {shape}", allowed=f"{expected}")
        return from_raw(payload[: raw_bytes(shape, dtype)], shape, dtype)

    def through(self, x: Tensor) -> Tensor:
        """Return the tensor: fixed point and the noise of CKKS are left out."""
        return x


@final
class Paillier(Encryption):
    """Paillier's cost (1999): a ciphertext has twice the bits of the key, and adds up. Nothing is encrypted.

    A ciphertext holds ``packed`` values of 64 bits. The receiver decrypts, so it holds the key; no message brings keys.

    Examples: ``{kind: paillier, key: 3072, packed: 32, gradients: true}``,
    ``{kind: paillier, key: 2048, times: {encrypt: 5 ms, add: 5 us, multiply: 200 us, decrypt: 2 ms}}``
    """

    kind: Literal["paillier"] = "paillier"
    key: Literal[1024, 2048, 3072, 4096] = 2048
    """The bits of the modulus n. 2048 bits count as 112 bits of security, 3072 as 128."""
    packed: Annotated[int, Field(ge=1)] = 1
    """Values in one ciphertext, at most one for each 64 bits of the key."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        most = self.key // SLOT_BITS
        if self.packed > most:
            raise ValueError(
                f"packed: {self.packed} values of {SLOT_BITS} bits; allowed: 1 to {most}, key ÷ {SLOT_BITS}"
            )
        return self

    @property
    def cipher_size(self) -> int:
        """The bits of the key."""
        return self.key

    @property
    def values(self) -> int:
        """The values that are packed."""
        return self.packed

    @property
    def ciphertext_bytes(self) -> int:
        """The bytes of a number below n²."""
        return 2 * self.key // 8


@final
class Ckks(Encryption):
    """The cost of CKKS (Cheon et al. 2017): a ciphertext has degree ÷ 2 slots, and adds up. Nothing is encrypted.

    Its bytes are those of two polynomials whose coefficients have 8 bytes for each prime of the modulus, as in memory;
    compression saves a sixth. The noise of the scheme is left out.

    Examples: ``{kind: ckks, degree: 16384, gradients: true}``,
    ``{kind: ckks, degree: 8192, times: {encrypt: 4 ms, add: 60 us, multiply: 2 ms, decrypt: 1 ms}}``
    """

    kind: Literal["ckks"] = "ckks"
    degree: Literal[8192, 16384] = 8192
    """The degree of the polynomials. Primes have 60, 40 and 40 bits, or 60 and four times 40; one more is special."""

    @property
    def cipher_size(self) -> int:
        """The degree."""
        return self.degree

    @property
    def values(self) -> int:
        """The slots."""
        return self.degree // 2

    @property
    def ciphertext_bytes(self) -> int:
        """The bytes of two polynomials."""
        return 2 * self.degree * 8 * (len(PRIMES[self.degree]) - 1)


PRIMES: Mapping[int, list[int]] = {8192: [60, 40, 40, 60], 16384: [60, 40, 40, 40, 40, 60]}
"""The bits of the primes of a CKKS modulus, the special one last: together within 128 bits of security."""


def scheme_of(codec: Codec, receiver: int) -> Encryption | None:
    """Return the scheme by which messages to ``receiver`` are encrypted, if they are."""
    towards = codec.towards(receiver)
    return towards if isinstance(towards, Encryption) else None


def encrypts(codec: Codec) -> bool:
    """Return whether a codec encrypts what goes to the server, or to clients."""
    return any(scheme_of(codec, receiver) for receiver in (0, 1))


def in_the_clear(codec: Codec) -> str:
    """Say that a codec encrypts nothing, where it would in a deployment; empty if it does not pretend to."""
    return f"{codec.kind} is a cost: inside the simulator values pass in the clear" if encrypts(codec) else ""


def sealed(values: NDArray[np.float64], width: int) -> NDArray[np.uint8]:
    """Return rows of ``values`` (n, v) as ciphertexts of ``width`` bytes, (n, width): in the clear, then zeros."""
    body = np.zeros((len(values), width), np.uint8)
    clear = np.ascontiguousarray(values, "<f8").view(np.uint8)
    body[:, : clear.shape[1]] = clear
    return body


def opened(body: NDArray[np.uint8], wide: int) -> NDArray[np.float64]:
    """Invert ``sealed`` for rows of ``wide`` values."""
    values: Any = np.ascontiguousarray(body[:, : 8 * wide]).view("<f8")
    return np.array(values, np.float64)
