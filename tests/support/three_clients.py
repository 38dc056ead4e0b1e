"""A scenario of three clients with momentum, for comparisons with plain autograd."""

from __future__ import annotations

from typing import Any

from tiny_worlds import raw

MLP = {"kind": "mlp", "hidden": [7], "embedding": 5}
MOMENTUM = {"kind": "sgd", "lr": 0.03, "momentum": 0.8, "weight_decay": 0.01}


def three_clients(protocol: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A scenario of three clients with momentum, as a mapping."""
    changes = {
        "models__client": MLP,
        "training__client_optimizer": MOMENTUM,
        "training__server_optimizer": MOMENTUM,
        "partition": {"clients": 3, "by": "image_rows"},
        **changes,
    }
    return raw({"it": protocol}, **changes)
