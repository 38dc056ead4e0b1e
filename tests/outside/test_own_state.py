"""State of learners from outside the package: what checkpoints keep, and what is refused because they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kept_runs import KeptAt, files_of, interrupted, whole
from outside_protocols.remembering import LOST, SOUND, Remember
from tiny_worlds import run, tiny

from vflsim.errors import UnkeptStateError
from vflsim.scenario.models import Scenario
from vflsim.simulation.execution import Execution

SHORT: dict[str, Any] = {"partition": {"clients": 2, "by": "columns"}, "stop": {"rounds": 6}}
EVERY: dict[str, Any] = {"evaluate": {"every": "1 rounds"}}


def remembering(way: str, **changes: Any) -> Scenario:
    path = "outside_protocols.remembering:Remember"
    return tiny({"mine": {"kind": "module", "path": path, "way": way}}, **{**SHORT, **EVERY, **changes})


@pytest.mark.parametrize("way", LOST)
def test_a_change_that_checkpoints_do_not_keep_ends_the_run(way: str) -> None:
    with pytest.raises(UnkeptStateError) as caught:
        run(remembering(way))
    error = caught.value
    assert error.what.startswith("client_step changed Remembering.mine, which checkpoints do not keep")
    assert error.where.startswith("client-1, client_step, round 1 at ")
    assert 'self.kept["mine"]' in error.remedy


@pytest.mark.parametrize("way", SOUND)
@pytest.mark.parametrize("execution", [Execution(), Execution(eager=True)], ids=["batched", "eager"])
def test_what_checkpoints_keep_is_resumed_to_the_byte(way: str, execution: Execution, tmp_path: Path) -> None:
    scenario = remembering(way)
    outcome, last = whole(scenario, execution=execution)
    expected = files_of(outcome, tmp_path / "whole", scenario)
    interrupted(scenario, tmp_path / "kept", [last // 2], execution=execution)
    resumed = run(scenario, keeper=KeptAt(tmp_path / "kept"), execution=execution)
    assert "resumed from" in resumed.note
    assert files_of(resumed, tmp_path / "resumed", scenario) == expected


def test_what_is_kept_changes_the_training() -> None:
    plain, kept = (run(remembering(way)).weights for way in ("nothing", "kept counter"))
    assert any(not tensor.equal(kept[name]) for name, tensor in plain.items())


def test_a_protocol_of_ones_own_in_python_is_watched_too() -> None:
    scenario = tiny("synchronous", **SHORT, **EVERY).with_protocols({"mine": Remember(way="counter")})
    with pytest.raises(UnkeptStateError):
        run(scenario, "mine")
