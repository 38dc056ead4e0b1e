"""How fast coded computing is: products of matrices over F_p, and encoding and decoding Lagrange shares.

Two threads, for everything that is compared. The contenders take turns, each with the same matrices; times are medians,
in wall-clock milliseconds, and ratios are of medians of one run: they are what carries over to another machine.
Run: OMP_WAIT_POLICY=passive python benchmarks/coding.py (else threads that wait for each other spin, which on a busy
machine takes longer than the work)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import flint
import numpy as np
import torch

from vflsim.coding.field import MERSENNE_31, MERSENNE_61, PrimeField
from vflsim.coding.lagrange import LagrangeCode

THREADS = 2
REPEATS = 31
PRODUCT = (1024, 512, 512)
SEGMENTS, MASKS = 8, 1
DATA, MODEL, RESULT = (7500, 28), (28, 64), (32, 64)
"""A client's rows of a segment, its model, and a batch of results, for FashionMNIST in 28 columns of 28 pixels."""


def medians(contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds that each takes, all of them taking turns after a first time that does not count."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(1 + REPEATS):
        for name, call in contenders.items():
            began = time.perf_counter()
            call()
            times[name].append(1e3 * (time.perf_counter() - began))
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def products(p: int) -> None:
    """A matrix product over F_p against python-flint's and against one of float64."""
    field, bits, (n, k, m) = PrimeField(p), np.random.Philox(0), PRODUCT
    a, b = field.uniform((n, k), bits), field.uniform((k, m), bits)
    left, right = flint.nmod_mat(n, k, a.flatten().tolist(), p), flint.nmod_mat(k, m, b.flatten().tolist(), p)
    x, y = a.double(), b.double()
    took = medians({"field": lambda: field.matmul(a, b), "flint": lambda: left * right, "float64": lambda: x @ y})
    print(
        f"product {n}x{k}x{m}, p = 2^{p.bit_length()} - 1: {took['field']:7.2f} ms;"
        f" flint {took['flint']:7.2f} ms, {took['flint'] / took['field']:.2f} times as long;"
        f" float64 {took['float64']:6.2f} ms, {took['field'] / took['float64']:.2f} of them"
    )


def code(p: int, shares: int) -> None:
    """Encoding a client's data and its model, and decoding a round's results, against bare float64 products."""
    field, bits = PrimeField(p), np.random.Philox(0)
    code = LagrangeCode(field, SEGMENTS, MASKS, shares)
    threshold = code.threshold()
    coded = SEGMENTS + MASKS
    data, model = field.uniform((coded, *DATA), bits), field.uniform(MODEL, bits)
    masks, results = field.uniform((MASKS, *MODEL), bits), field.uniform((threshold, *RESULT), bits)
    holders = range(shares - threshold, shares)
    matrix, secrets = torch.ones(shares, coded, dtype=torch.float64), data.flatten(1).double()
    took = medians(
        {
            "data": lambda: code.encode(data),
            "float64": lambda: matrix @ secrets,
            "model": lambda: code.encode_repeated(model, masks),
            "decode": lambda: code.decode(results, holders),
        }
    )
    print(
        f"K = {SEGMENTS}, T = {MASKS}, N = {shares:3}, p = 2^{p.bit_length()} - 1:"
        f" data {_by(DATA)} a segment {took['data']:6.1f} ms, {took['data'] / took['float64']:.2f} float64 products;"
        f" model {_by(MODEL)} {took['model']:.2f} ms; {threshold} results {_by(RESULT)} {took['decode']:.2f} ms"
    )


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def main() -> None:
    torch.set_num_threads(THREADS)
    flint.ctx.threads = THREADS
    print(f"{THREADS} threads, medians of {REPEATS}")
    for p in (MERSENNE_31, MERSENNE_61):
        products(p)
    for p in (MERSENNE_31, MERSENNE_61):
        for shares in (28, 100):
            code(p, shares)


if __name__ == "__main__":
    main()
