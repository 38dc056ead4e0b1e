"""Tiny scenarios that name protocols outside the package by path."""

from __future__ import annotations

from typing import Any

from tiny_worlds import raw

PATHS = {
    "two_trip": "outside_protocols.two_trip:TwoTrip",
    "three_tensors": "outside_protocols.three_tensors:ThreeTensors",
}
OWN_KEYS: dict[str, dict[str, Any]] = {"two_trip": {}, "three_tensors": {"local_steps": 2}}
SECTIONS: dict[str, dict[str, Any]] = {
    "two_trip": {
        "partition": {"clients": 3, "active": True},
        "models__active": {"kind": "mlp", "hidden": [7], "embedding": 6},
    },
    "three_tensors": {
        "partition": {"clients": 3, "by": "columns"},
        "models__aggregate": "sum",
        "models__server": {"kind": "linear"},
    },
}
INT8 = {"kind": "module", "path": "int8_codec:Int8", "step": 0.05}
FEEDBACK = {"kind": "module", "path": "int8_codec:Int8Feedback", "step": 0.05}


def entry(kind: str, **keys: Any) -> dict[str, Any]:
    """An entry of a scenario's protocols."""
    return {"kind": "module", "path": PATHS[kind], **OWN_KEYS[kind], **keys}


def outside(kind: str, keys: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A scenario with one of the two protocols, as a mapping."""
    return raw({kind: entry(kind, **(keys or {}))}, **{**SECTIONS[kind], "stop": {"rounds": 8}, **changes})
