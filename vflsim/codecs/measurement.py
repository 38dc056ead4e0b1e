"""Measures what ciphertexts take on this machine, with phe and TenSEAL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from vflsim.codecs.encryption import PRIMES, TIMES, CipherTimes, Ckks, Encryption, Paillier
from vflsim.errors import MissingLibraryError, of_extra

_REPEATS = 5
_FACTOR = 2**53 - 1
"""A mantissa of a double, by which a ciphertext is multiplied."""


def measure() -> Iterator[Encryption]:
    """Yield each scheme that has a library here, with the times of this machine.

    Raises ``MissingLibraryError`` if there is none.
    """
    missing: list[MissingLibraryError] = []
    for kind, size in TIMES:
        try:
            if kind == "paillier":
                yield Paillier.model_validate({"key": size, "times": _paillier(size)})
            else:
                yield Ckks.model_validate({"degree": size, "times": _ckks(size)})
        except MissingLibraryError as error:
            missing.append(error)
    if len(missing) == len(TIMES):
        raise missing[0]


def _paillier(key: int) -> CipherTimes:
    with of_extra("encryption", "the measurement of Paillier"):
        from phe import paillier
    public, private = paillier.generate_paillier_keypair(n_length=key)
    one, other = public.raw_encrypt(12_345), public.raw_encrypt(99)
    number: Any = paillier.EncryptedNumber(public, one)
    return CipherTimes(
        encrypt=_seconds(lambda: public.raw_encrypt(12_345), 8),
        add=_seconds(lambda: number._raw_add(one, other), 500),
        multiply=_seconds(lambda: number._raw_mul(_FACTOR), 50),
        decrypt=_seconds(lambda: private.raw_decrypt(one), 8),
    )


def _ckks(degree: int) -> CipherTimes:
    with of_extra("encryption", "the measurement of CKKS"):
        import tenseal
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, degree, coeff_mod_bit_sizes=PRIMES[degree], n_threads=1)
    context.global_scale = 2**40
    values = np.linspace(-1, 1, degree // 2).tolist()
    one, other = tenseal.ckks_vector(context, values), tenseal.ckks_vector(context, values)
    return CipherTimes(
        encrypt=_seconds(lambda: tenseal.ckks_vector(context, values), 3),
        add=_seconds(lambda: one + other, 20),
        multiply=_seconds(lambda: one * values, 3),
        decrypt=_seconds(one.decrypt, 3),
    )


def _seconds(call: Callable[[], object], times: int) -> float:
    """Return the processor seconds of a call: the median of means of so many ``times``."""
    taken = []
    for _ in range(_REPEATS):
        start = time.process_time()
        for _ in range(times):
            call()
        taken.append((time.process_time() - start) / times)
    return float(f"{sorted(taken)[_REPEATS // 2]:.3g}")
