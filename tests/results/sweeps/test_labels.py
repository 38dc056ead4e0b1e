"""Keys of sweeps in words."""

from pathlib import Path

import pytest

from vflsim.results.sweeps import Sweep


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("constants.bandwidth_Mbps", "bandwidth [Mbps]"),
        ("constants.longest_wait_ms", "longest wait [ms]"),
        ("partition.clients", "clients"),
        ("constants.t", "t"),
        ("protocols.t-sync.t", "t"),
        ("timing.clients.link.up,timing.clients.link.down", "bandwidth"),
        ("training.client_optimizer.lr,training.server_optimizer.lr", "learning rate"),
        ("protocols.vim.local_steps,training.batch", "local steps, batch size"),
    ],
)
def test_the_label_of_a_key_is_in_words(key: str, label: str) -> None:
    assert Sweep(Path(), "tiny", (key,), True, ((1,),), (), ()).label == label
