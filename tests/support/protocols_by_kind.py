"""Protocols and client models to run everything with, by name.."""

from __future__ import annotations

from math import prod
from typing import Any

from thorough import is_thorough
from torch import nn

HEADS: dict[str, Any] = {"aggregate": "concat", "server": {"kind": "linear", "bias": False}}
"""One linear head for each client."""
KINDS: dict[str, dict[str, Any]] = {
    "synchronous": {"kind": "synchronous"},
    "synchronous-rounded": {"kind": "synchronous", "codec": {"kind": "round", "noise": {"epsilon": 2}}},
    "ignore-exclude": {"kind": "ignore", "exclude": "N"},
    "ignore-fastest": {"kind": "ignore", "fastest": 2},
    "ignore-deadline": {"kind": "ignore", "deadline": "12 ms"},
    "t-synchronous": {"kind": "t_synchronous", "t": 2},
    "t-synchronous-cancel": {"kind": "t_synchronous", "t": 2, "cancel": True},
    "t-synchronous-bounded": {"kind": "t_synchronous", "t": 2, "max_staleness": 1, "first_fill": "upload"},
    "asynchronous": {"kind": "asynchronous"},
    "asynchronous-bounded": {"kind": "asynchronous", "max_staleness": 2, "bounds": "row_age"},
    "centralised": {"kind": "centralised"},
    "fedvs": {"kind": "fedvs", "K": 1},
    "fedvs-finished": {"kind": "fedvs", "K": 1, "late": "finished", "arithmetic": "decoded"},
    "fedvs-partial": {"kind": "fedvs", "K": 1, "sharers": 3},
    "vimsgd": {"kind": "vimsgd", "models": HEADS},
    "vimsgd-exclude": {"kind": "vimsgd", "exclude": "1", "models": HEADS},
    "vimadmm": {"kind": "vimadmm", "rho": 0.2, "local_steps": 2, "models": HEADS},
    "vimadmm_j": {"kind": "vimadmm_j", "rho": 0.2, "local_steps": 2, "models": HEADS},
    "fdml": {"kind": "fdml", "models": HEADS},
    "fdml-exclude": {"kind": "fdml", "exclude": "N", "models": HEADS},
    "fedbcd": {"kind": "fedbcd", "local_steps": 2},
    "fedbcd-sequential": {"kind": "fedbcd", "local_steps": 2, "order": "sequential"},
    "easter": {"kind": "easter", "models": {"aggregate": "mean"}},
    "easter-clear": {"kind": "easter", "blinding": "off", "models": {"aggregate": "mean"}},
    "synchronous-blinded": {"kind": "synchronous", "blinding": "on", "models": {"aggregate": "mean"}},
    "ignore-blinded": {
        "kind": "ignore",
        "fastest": 2,
        "blinding": {"bits": 64, "fraction": 40},
        "models": {"aggregate": "sum"},
    },
    "fedbcd-recomputed": {"kind": "fedbcd", "local_steps": 2, "gradients": "recomputed"},
    "c_vfl": {"kind": "c_vfl", "local_steps": 2, "codec": {"kind": "top_k", "fraction": 0.4}},
    "ef_vfl": {"kind": "ef_vfl", "local_steps": 2, "codec": {"kind": "scalar_quantiser", "bits": 8, "dither": "none"}},
    "ef_vfl-private": {"kind": "ef_vfl", "labels": "private", "codec": {"kind": "top_k", "fraction": 0.4}},
    "local": {"kind": "local", "models": {"aggregate": "mean"}},
    "pyvertical": {"kind": "pyvertical", "models": {"aggregate": "concat"}},
    "agg_vfl": {"kind": "agg_vfl", "models": {"aggregate": "mean"}},
    "agg_vfl-sum": {"kind": "agg_vfl", "combine": "sum", "models": {"aggregate": "mean"}},
    "bs_vfl": {"kind": "bs_vfl", "window": 2, "local_steps": 2},
    "celu_vfl": {"kind": "celu_vfl", "cache": 2, "uses": 3, "angle": 80},
    "flex_vfl": {"kind": "flex_vfl", "local_time": "6 ms", "scale_rate": True},
    "laser_vfl": {"kind": "laser_vfl", "deadline": "12 ms", "models": {"aggregate": "mean"}},
    "secureboost": {"kind": "secureboost", "depth": 2, "bins": 8, "packed": 32},
    "secureboost-first": {"kind": "secureboost", "depth": 2, "bins": 6, "goss": {"top": 0.3, "other": 0.2}},
    "he_lr": {"kind": "he_lr", "learning_rate": 0.02},
    "he_lr-shares": {"kind": "he_lr", "form": "sshe", "learning_rate": 0.02},
    "few_shot": {
        "kind": "few_shot",
        "aligned": 30,
        "exchanges": 100,
        "epochs": 1,
        "server_epochs": 1,
        "unlabelled": 1,
        "threshold": 0.15,
    },
    "fdml-mean": {"kind": "fdml", "combine": "mean", "models": HEADS},
    "czofo": {"kind": "czofo", "samples": 2},
    "czofo-weights": {"kind": "czofo", "samples": 2, "perturbs": "weights"},
    "pubsub_vfl": {"kind": "pubsub_vfl", "workers": {"active": 2, "passive": 3}, "capacity": 5, "average_every": 3},
    "pubsub_vfl-late": {"kind": "pubsub_vfl", "deadline": "6 ms"},
    "dpzv": {"kind": "dpzv", "noise": {"clip": 1, "delta": 1e-5, "noise_multiplier": 0.5}},
}
SOME = [*(KINDS if is_thorough() else {said["kind"]: name for name, said in reversed(KINDS.items())}.values())]
"""One of each kind, or with ``--thorough`` all."""


MEAN: dict[str, Any] = {"aggregate": "mean"}
KEYS: dict[str, dict[str, Any]] = {
    "synchronous-concat": {"kind": "synchronous", "models": {"aggregate": "concat"}},
    "synchronous-learned": {"kind": "synchronous", "models": {"aggregate": "learned_mean"}},
    "t-synchronous-upload": {"kind": "t_synchronous", "t": 3, "first_fill": "upload", "training": {"batches": "own"}},
    "t-synchronous-cancel-upload": {"kind": "t_synchronous", "t": 2, "cancel": True, "first_fill": "upload"},
    "asynchronous-upload": {"kind": "asynchronous", "first_fill": "upload"},
    "asynchronous-own": {"kind": "asynchronous", "training": {"batches": "own"}},
    "fedvs-delay": {"kind": "fedvs", "K": 1, "share_delay_factor": 0.3},
    "fedbcd-server": {"kind": "fedbcd", "local_steps": 2, "server_steps": 4},
    "fedbcd-server-recomputed": {"kind": "fedbcd", "local_steps": 3, "server_steps": 4, "gradients": "recomputed"},
    "fedbcd-server-sequential": {"kind": "fedbcd", "local_steps": 2, "server_steps": 3, "order": "sequential"},
    "c_vfl-steps": {"kind": "c_vfl", "local_steps": 3},
    "ef_vfl-private-steps": {"kind": "ef_vfl", "labels": "private", "local_steps": 3},
    "vimadmm_j-exclude": {"kind": "vimadmm_j", "rho": 2, "local_steps": 2, "exclude": "N", "models": HEADS},
    "bs_vfl-waits": {"kind": "bs_vfl", "window": 0, "server_steps": 2},
    "celu_vfl-often": {"kind": "celu_vfl", "cache": 4, "uses": 5},
    "flex_vfl-given": {"kind": "flex_vfl", "local_steps": [4, 2, 1, 2, 3]},
    "flex_vfl-alike": {"kind": "flex_vfl", "local_steps": [4, 2, 2, 2, 2]},
    "pubsub_vfl-alone": {"kind": "pubsub_vfl", "workers": {"active": 1, "passive": 1}, "capacity": 1},
    "laser_vfl-all": {"kind": "laser_vfl", "models": MEAN},
    "laser_vfl-fastest": {"kind": "laser_vfl", "fastest": 2, "models": MEAN},
}
"""More keys of some kinds, which change who does what when."""
PARTS: dict[str, dict[str, Any]] = {
    f"codec-{kind}": {"kind": "synchronous", "codec": {"kind": kind, **more}}
    for kind, more in {
        "float16": {},
        "bfloat16": {},
        "round": {},
        "top_k": {"fraction": 0.5},
        "scalar_quantiser": {"bits": 4},
        "vector_quantiser": {"bits": 4},
        "binarise": {},
    }.items()
} | {
    "mechanism": {
        "kind": "synchronous",
        "mechanism": {"kind": "gaussian", "clip": 1, "noise_multiplier": 1, "delta": 1e-5},
    },
}
"""Codecs and a mechanism, which `synchronous` has not."""


class OnesOwn(nn.Sequential):
    """A network of a user's own."""

    def __init__(self, feature_shape: tuple[int, ...], embedding: int, hidden: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(prod(feature_shape), hidden), nn.Tanh(), nn.Linear(hidden, embedding))


MODELS: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear", "embedding": 5},
    "unbiased": {"kind": "linear", "bias": False, "embedding": 5},
    "polynomial": {"kind": "polynomial", "degree": 3, "embedding": 5},
    "mlp": {"kind": "mlp", "hidden": [7, 6], "embedding": 5},
    "gelu": {"kind": "mlp", "hidden": [4], "activation": "gelu", "embedding": 5},
    "cnn": {"kind": "cnn", "channels": [2], "embedding": 5},
    "module": {"kind": "module", "path": "protocols_by_kind:OnesOwn", "arguments": {"hidden": 4}, "embedding": 5},
}
