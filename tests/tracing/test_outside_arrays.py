"""Protocols from the facade alone have arrays without a line of their own: one trip, two trips, local steps."""

from typing import Any

import pytest
from both_paths import assert_same_bytes, quick
from outside_worlds import PATHS, SECTIONS, entry
from tiny_worlds import RANDOM_TIMING

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "first": ({"kind": "module", "path": "outside_protocols.first:First"}, {}),
    **{kind: (entry(kind), SECTIONS[kind]) for kind in PATHS},
}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize(
    "stop", [{"rounds": 70}, {"time": "0.3 s"}, {"updates": 101}, {"epochs": 8}], ids=lambda stop: next(iter(stop))
)
@pytest.mark.parametrize("codec", ["plain", {"kind": "by_direction", "up": {"kind": "top_k", "fraction": 0.3}}])
def test_arrays_leave_the_bytes_of_events(kind: str, stop: dict[str, Any], codec: Any) -> None:
    protocol, changes = CASES[kind]
    every = {"every": "7 updates"} if "updates" in stop else {"every": "20 ms"}
    assert_same_bytes(quick(protocol, timing=RANDOM_TIMING, stop=stop, codec=codec, evaluate=every, **changes))
