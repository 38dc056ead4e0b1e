"""``--over KEY=V1,V2,…``: values in YAML, and ranges of whole numbers."""

import re

import pytest

from vflsim.errors import ScenarioError
from vflsim.scenario.overrides import values_of


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("protocols.t-sync.t=1,2,4", "protocols.t-sync.t", [1, 2, 4]),
        ("training.batch=32", "training.batch", [32]),
        ("clients.0.link.up=5 Mbps, 50 Mbps,unlimited", "clients.0.link.up", ["5 Mbps", "50 Mbps", "unlimited"]),
        ("constants.slow = 0.5, 1e-3", "constants.slow", [0.5, 0.001]),
        ("x={kind: exponential, mean: 2},{b: 1}", "x", [{"kind": "exponential", "mean": 2}, {"b": 1}]),
        ("x=[1, [2, 3]],4", "x", [[1, [2, 3]], 4]),
        ("x='a,b',\"c, d\",e'f,g", "x", ["a,b", "c, d", "e'f", "g"]),
        ("x=null,true", "x", [None, True]),
        ("x=2*N, i/2", "x", ["2*N", "i/2"]),
        ("t=1:4", "t", [1, 2, 3]),
        ("t=1:9:3,20", "t", [1, 4, 7, 20]),
        ("t='1:4'", "t", ["1:4"]),
        ("up=5,50,500 Mbps", "up", ["5 Mbps", "50 Mbps", "500 Mbps"]),
        ("up=unlimited, 5 kbps, .5,1e3 Mbps", "up", ["unlimited", "5 kbps", ".5 Mbps", "1e3 Mbps"]),
        ("mean=0,1:4 ms", "mean", ["0 ms", "1 ms", "2 ms", "3 ms"]),
        ("rate=1,2/s", "rate", ["1 /s", "2/s"]),
        ("up=5ms,10ms", "up", ["5ms", "10ms"]),
        ("x=1,2 furlongs", "x", [1, "2 furlongs"]),
        ("x=1,i ms", "x", [1, "i ms"]),
        ("select=1..4", "select", ["1..4"]),
    ],
)  # fmt: skip
def test_values_are_yaml_between_commas(text: str, key: str, values: list[object]) -> None:
    assert values_of(text, "--over") == (key, values)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("t", "the key or its values are missing"),
        ("=1,2", "the key or its values are missing"),
        ("a..b=1", "the key or its values are missing"),
        ("t=", "a value is missing"),
        ("t=1,,2", "a value is missing"),
        ("t=1,2,", "a value is missing"),
        ("t=4:4", "4:4 holds no value"),
        ("t=1:4:0", "1:4:0 holds no value"),
        ("t=0:1000000000", "0:1000000000 holds 1,000,000,000 values"),
        ("t={a: 1", "the file ends inside a value"),
        ("t=1,]", "this is not YAML"),
    ],
)
def test_what_cannot_be_read_is_shown_with_what_is_allowed(text: str, what: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(what)) as caught:
        values_of(text, "--over")
    assert str(caught.value).startswith(f"--over {text}")
    assert "allowed: " in str(caught.value)
