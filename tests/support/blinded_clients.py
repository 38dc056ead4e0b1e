"""Clients that have agreed on keys, without a run."""

from __future__ import annotations

import torch

from vflsim.learning.privacy.blinding import BlindedSum, Blinding, Masks, private_key, public_key, shared_secret


def group_of(clients: int, bits: int = 32, fraction: int = 16) -> BlindedSum:
    """A sum over clients 1, 2, …, of float64."""
    return BlindedSum(Blinding(bits=bits, fraction=fraction), tuple(range(1, clients + 1)), torch.float64)


def masks_of(clients: int, bits: int = 32, seed: int = 0) -> dict[int, Masks]:
    """Every client's masks."""
    private = {client: private_key(seed, client) for client in range(1, clients + 1)}
    public = {client: public_key(key) for client, key in private.items()}
    return {
        client: Masks(client, {m: shared_secret(key, public[m]) for m in public if m != client}, bits, "run")
        for client, key in private.items()
    }
