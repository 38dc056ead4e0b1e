"""The law of a round agrees with drawn rounds and with the simulation, for every protocol that waits for all."""

from __future__ import annotations

from typing import Any

import pytest
from closed_form_checks import seen
from protocols_by_kind import KEYS, KINDS
from thorough import in_turn
from tiny_worlds import raw

NAMES = [
    *("synchronous", "ignore-exclude", "easter", "easter-clear", "local", "pyvertical", "agg_vfl"),
    *("fedbcd", "fedbcd-server", "fedbcd-sequential", "fedbcd-recomputed", "c_vfl", "c_vfl-steps", "ef_vfl"),
    *("ef_vfl-private", "ef_vfl-private-steps", "vimsgd", "vimsgd-exclude", "vimadmm", "vimadmm_j", "fdml"),
    *("fdml-exclude", "fdml-mean", "flex_vfl-given", "laser_vfl-all"),
]
ONE_TRIP = "synchronous", "vim", "fdml"
"""Rounds of one trip can be drawn, too."""
EXPONENTIAL = {"kind": "exponential", "mean": "40 ms"}
FLOPS = {"kind": "flops", "rate": "1e5 FLOPS"}
LINK = {"up": "100 kbps", "down": "100 kbps"}
TIMES: dict[str, tuple[Any, Any]] = {
    "times": ("40 ms", "1 ms"),
    "times, a slow server": (EXPONENTIAL, "150 ms"),
    "random": (EXPONENTIAL, EXPONENTIAL),
    "flops": (FLOPS, FLOPS),
    "flops, a random server": (FLOPS, EXPONENTIAL),
}
"""What computations take clients, and the server."""
PARTITION = {"clients": 3, "by": "columns"}


@pytest.mark.sampled(2)
@in_turn(name=NAMES, times=TIMES, network=["dedicated", "fifo"])
def test_the_law_of_a_round_agrees_with_its_simulation(name: str, times: tuple[Any, Any], network: str) -> None:
    """Messages that wait for each other leave bounds: in both trips, in turns, and beside local steps."""
    compute, server = times
    everybody = {"compute": compute, "link": LINK, "upload_delay": {"kind": "exponential", "mean": "m ms"}}
    timing = {
        "network": network,
        "server": {"compute": server, "link": LINK},
        "clients": [{"select": "all", **everybody}],
    }
    said = {**KINDS, **KEYS}[name]
    if name.startswith("flex"):
        said = {**said, "local_steps": [4, 2, 1, 3]}
    checked = seen(raw({"it": said}, timing=timing, training__last_batch="drop", record="rounds", partition=PARTITION),
                   100, steps=300)  # fmt: skip
    assert checked.wrong == []
    assert checked.forms["none"] == 0
    assert checked.forms["bounds"] == (network == "fifo" and name != "local")
    assert checked.checks["drawn"] > 0 or network == "fifo" or not name.startswith(ONE_TRIP)
    assert checked.checks["simulated"] > 0


UNLIKE: dict[str, Any] = {
    "models__client": [
        {"select": "all", "kind": "mlp", "hidden": [40], "embedding": 6},
        {"select": "2", "kind": "cnn", "channels": [2], "embedding": 6},
    ],
    "models__predictor": [{"select": "1", "kind": "mlp", "hidden": [30]}, {"select": "3", "kind": "linear"}],
    "models__active": {"kind": "mlp", "hidden": [9], "embedding": 6},
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("blinding", ["off", "on"])
def test_so_does_that_of_parties_with_unlike_models(blinding: str) -> None:
    everybody = {"compute": FLOPS, "link": LINK, "upload_delay": {"kind": "exponential", "mean": "m ms"}}
    timing = {"network": "dedicated", "server": {"compute": FLOPS}, "clients": [{"select": "all", **everybody}]}
    said = {"timing": timing, "partition": {"clients": 3, "by": "image_rows"}, **UNLIKE}
    easter = {"it": {"kind": "easter", "blinding": blinding}}
    checked = seen(raw(easter, **said, training__last_batch="drop", record="rounds"), 100, steps=400)
    assert checked.wrong == []
    assert checked.forms["none"] == checked.forms["bounds"] == 0
    assert checked.checks["simulated"] > 0
