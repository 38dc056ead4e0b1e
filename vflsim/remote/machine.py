"""What processes of a live run compare: this machine, this version, this scenario, and the largest frame."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import torch

from vflsim.protocol import Peering
from vflsim.remote.control import Common
from vflsim.remote.private_data import PrivateData
from vflsim.scenario import Scenario, client_models, placeless, setting
from vflsim.worlds import __version__, exchanges_of

_ROOM = 2**20


@cache
def machine() -> str:
    """Return the name of this start of this machine, on which the monotonic clock is one; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def digest_of(scenario: Scenario) -> str:
    """Return the SHA-256 of a scenario's resolved text. Parties may keep their files in other folders."""
    return hashlib.sha256(placeless(scenario).encode()).hexdigest()


def common(scenario: Scenario, data: PrivateData) -> Common:
    """Return what this process must have in common with the others of a run."""
    rows = data.of(next(iter(scenario.protocols))).rows_digest
    return Common(digest_of(scenario), rows, __version__)


def largest_frame(scenario: Scenario, data: PrivateData) -> int:
    """Return an upper bound of a message's bytes: all parties' tensors of the largest split, in doubles, and heads."""
    most = 0
    for name in scenario.protocols:
        loaded = data.of(name)
        rows = max(len(labels) for labels in loaded.labels.values())
        widths = sum(model.embedding for model in client_models(scenario, name)) + loaded.outputs
        most = max(most, 8 * rows * (4 * widths + 1))
    return min(most + _ROOM, 2**32 - 1)


def largest_between_clients(scenario: Scenario, data: PrivateData, client: int) -> int:
    """Return an upper bound of the bytes of another client's message to this one, over all protocols.

    Where a protocol does not say what such messages contain, that of messages to the server counts.
    """
    most = 0
    for name, said in scenario.protocols.items():
        if isinstance(said.protocol, Peering):
            resolved = setting(scenario, name, data.of(name))
            rows = said.protocol.batch_plan().batches(resolved.data.rows, resolved.training, 0).size
            others = [other for other in resolved.clients if other != client]
            exchanges = exchanges_of(said.protocol, resolved)
            contents = [exchanges.contents(other, client, rows) for other in others]
            alternatives = [each for kinds in contents for some in kinds.values() for each in some]
            sizes = [each.nbytes(resolved.codec, client) for each in alternatives]
            most = max([most, *sizes] if sizes else [most, largest_frame(scenario, data)])
    return min(most + _ROOM, 2**32 - 1)


def warm_up() -> None:
    """Do once what the first step would do for the first time: PyTorch's optimisers import their compiler, say."""
    weight = torch.nn.Parameter(torch.zeros(1))
    torch.autograd.backward([weight.square().sum()])
    torch.optim.SGD([weight], lr=0.1).step()
