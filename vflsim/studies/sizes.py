"""Size of a run: weights and memory, counted from shapes before any allocation."""

from __future__ import annotations

from dataclasses import dataclass

from vflsim.protocols import Protocol
from vflsim.protocols.made import learners_of
from vflsim.setting import Setting


@dataclass(frozen=True, slots=True)
class Size:
    """``parameters`` of all parties; ``bytes`` of features, weights with gradients, and what the protocol keeps."""

    parameters: int
    bytes: int


def size_of(protocol: Protocol, setting: Setting, views: int | None = None) -> Size:
    """Count the weights and bytes of a run that records ``views`` of so many rows.

    Raises ValueError for a model with more weights than can be counted.
    """
    learners, counted = learners_of(protocol, setting, seed=0), dict[object, tuple[int, int]]()
    sizes = [(learners.server.parameters, learners.server.nbytes)]
    for client, learner in learners.clients.items():
        alike = setting.alike(client)  # count alike clients once
        if alike not in counted:
            counted[alike] = learner.parameters, learner.nbytes
        sizes.append(counted[alike])
    parameters, nbytes = map(sum, zip(*sizes, strict=True))
    viewed = 0 if views is None else protocol.view_bytes(setting, min(views, setting.data.rows))
    return Size(parameters, nbytes + protocol.extra_bytes(setting) + viewed)
