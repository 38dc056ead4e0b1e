"""A study of every protocol that keeps linear heads, on digits with a noisy client 2, and of one without heads."""

from __future__ import annotations

from typing import Any

from plain_heads import heads

ADMM = {"rho": 0.5, "local_steps": 2}
EXPLAINED: dict[str, Any] = {
    "wait": {"kind": "synchronous"},
    "biased": {"kind": "synchronous", "models": {"server": {"kind": "linear"}}},
    "async": {"kind": "asynchronous"},
    "vimsgd": {"kind": "vimsgd"},
    "vimadmm": {"kind": "vimadmm", **ADMM},
    "vimadmm-j": {"kind": "vimadmm_j", **ADMM},
    "fdml": {"kind": "fdml", "exclude": 3},
    "fdml-mean": {"kind": "fdml", "combine": "mean"},
}
HEADLESS = {"perceptron": {"kind": "synchronous", "models": {"server": {"kind": "mlp", "hidden": [4]}}}}
SEEDS = (0, 1)


def said(**changes: Any) -> dict[str, Any]:
    """The scenario as a mapping."""
    data = {"name": "digits", "train_rows": 90, "test_fraction": 0.1, "noise": {"select": 2, "sd": 1}}
    more = {"data": data, "stop": {"rounds": 12}, "seeds": list(SEEDS), "record": "summary"}
    return {**heads({}, **more), "protocols": {**EXPLAINED, **HEADLESS}, **changes}
