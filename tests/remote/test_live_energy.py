"""Live runs refuse scenarios that say what parties draw."""

import pytest
from tiny_worlds import tiny

from vflsim.errors import ScenarioError
from vflsim.remote.built import refuse_unfit


def test_a_live_run_counts_no_energy() -> None:
    said = {"server": {"compute": "1 ms", "power": {"idle": "60 W"}}}
    with pytest.raises(ScenarioError, match="a live run counts no energy") as refused:
        refuse_unfit(tiny(timing=said))
    assert "--delays none" in str(refused.value)
    refuse_unfit(tiny(timing={"server": {"compute": "1 ms"}}))
