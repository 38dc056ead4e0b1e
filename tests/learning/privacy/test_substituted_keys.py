"""Blinding assumes a server that passes public keys on as they are: one that substitutes them reads every embedding."""

from __future__ import annotations

import torch

from vflsim.learning.privacy.blinding import BlindedSum, Blinding, Masks, private_key, public_key, shared_secret

CLIENTS = (1, 2, 3)
GROUP = BlindedSum(Blinding(), CLIENTS, torch.float64)


def test_a_server_that_substitutes_public_keys_reads_one_clients_embedding() -> None:
    """Client 1 gets keys of the server's own in the place of the others': the server has all its secrets."""
    keys = {client: private_key(0, client) for client in CLIENTS}
    servers = {client: private_key(99, client) for client in (2, 3)}
    believed = {other: shared_secret(keys[1], public_key(servers[other])) for other in servers}
    h = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    upload = GROUP.masked(h, Masks(1, believed, GROUP.blinding.bits, "run").of("embed", 0, h.numel()))
    clear = GROUP.masked(h, torch.zeros(h.numel(), dtype=torch.int64).numpy().astype("<u4"))
    assert not torch.equal(upload, clear)
    known = {other: shared_secret(private, public_key(keys[1])) for other, private in servers.items()}
    mask = Masks(1, known, GROUP.blinding.bits, "run").of("embed", 0, h.numel())
    read = (upload.numpy().view("u4") - mask.reshape(4, 3)).view("i4") * 2.0**-GROUP.blinding.fraction
    torch.testing.assert_close(torch.from_numpy(read), h, rtol=0, atol=2.0 ** -(GROUP.blinding.fraction + 1))


def test_a_server_with_its_own_keys_alone_reads_nothing() -> None:
    """The secrets of honest pairs need one of their private keys: the server's own give another mask."""
    keys = {client: private_key(0, client) for client in CLIENTS}
    honest = {other: shared_secret(keys[1], public_key(keys[other])) for other in (2, 3)}
    guessed = {other: shared_secret(private_key(99, other), public_key(keys[1])) for other in (2, 3)}
    one, two = (Masks(1, secrets, 32, "run").of("embed", 0, 1000) for secrets in (honest, guessed))
    assert (one == two).mean() < 0.01
