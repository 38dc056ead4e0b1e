"""A word or a number where a mapping is needed: the message shows one."""

from typing import Any

import pytest
from tiny_worlds import raw

from vflsim.errors import ScenarioError
from vflsim.scenario import load

WAIT = {"kind": "synchronous"}


@pytest.mark.parametrize(
    ("changes", "example"),
    [
        ({"protocols": {"wait": "synchronous"}}, "{kind: synchronous}"),
        ({"protocols": {"wait": "easter"}}, "{kind: easter}"),
        ({"training__client_optimizer": "adam"}, "{kind: adam, lr: 0.001"),
        ({"timing": {"clients": {"upload_delay": "exponential"}}}, "{kind: exponential, mean: 100 ms}"),
        ({"timing": {"clients": {"link": "10 Mbps"}}}, "{up: 20 Mbps, down: 100 Mbps, latency: 5 ms}"),
        ({"stop": "10 s"}, "{"),
        ({"stop": 60}, "{"),
        ({"evaluate": 5}, "{"),
        ({"partition": 4}, "{clients: 4, by: columns"),
        ({"data": "digits"}, "{name: fashion_mnist"),
        ({"target": 0.9}, "{"),
    ],
    ids=str,
)
def test_an_example_shows_what_to_write(changes: dict[str, Any], example: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(raw(**changes) if "protocols" in changes else raw({"it": WAIT}, **changes))
    assert f"write it as in `{example}" in str(caught.value)
