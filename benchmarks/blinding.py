"""What blinding costs a client beside its embedding model: python benchmarks/blinding.py."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from vflsim.learning.privacy.blinding import (
    BlindedSum,
    Blinding,
    Masks,
    mask_operations,
    private_key,
    public_key,
    shared_secret,
)

BATCH, WIDTH, FEATURES = 128, 128, 196
"""EASTER's batch and embedding, and a quarter of an MNIST image."""


def median_ms(work: Callable[[], object], repeats: int) -> float:
    """Return the median processor time of a call, in ms."""
    work()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return 1e3 * statistics.median(times)


def main() -> None:
    """Print a row for each number of clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    x = torch.randn(BATCH, FEATURES)

    def step() -> None:
        model.zero_grad()
        model(x).sum().backward()

    with torch.no_grad():
        forward, h = median_ms(lambda: model(x), repeats), model(x)
    print(f"MLP {FEATURES}-{WIDTH}-{WIDTH}, batch {BATCH}: forward {forward:.2f} ms, both ways", end=" ")
    print(f"{median_ms(step, repeats):.2f} ms")
    for clients in (3, 9, 20):
        numbers = tuple(range(1, clients + 1))
        private = private_key(0, 1)
        public = {m: public_key(private_key(0, m)) for m in numbers}

        def secrets(private: bytes = private, public: dict[int, bytes] = public) -> dict[int, bytes]:
            return {m: shared_secret(private, key) for m, key in public.items() if m != 1}

        group, masks = BlindedSum(Blinding(), numbers, torch.float32), Masks(1, secrets(), 32, "benchmark")
        mask = median_ms(lambda masks=masks: masks.of("embed", 7, h.numel()), repeats)
        whole = median_ms(lambda group=group, masks=masks: group.masked(h, masks.of("embed", 7, h.numel())), repeats)
        zero = group.masked(h / clients, 0 * masks.of("embed", 7, h.numel()))
        total = median_ms(lambda group=group, zero=zero: group.total(dict.fromkeys(group.clients, zero)), repeats)
        keys = median_ms(secrets, 20)
        print(
            f"{clients} clients: masks {mask:.2f} ms, with encoding {whole:.2f} ms; sum at the server {total:.2f} ms; "
            f"keys once {keys:.1f} ms; counted {mask_operations(h.numel(), 32, clients - 1) / 1e6:.1f} M operations, "
            f"forward pass {2 * BATCH * WIDTH * (FEATURES + WIDTH) / 1e6:.1f} M FLOPs"
        )


if __name__ == "__main__":
    main()
