"""State of learners from outside the package: what checkpoints keep, and what is refused because they do not."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended
from kept_runs import KeptAt, assert_interruptions_change_no_byte, interrupted, whole
from outside_protocols.remembering import LOST, SOUND, Remember
from ruamel.yaml import YAML
from tiny_worlds import raw, run, tiny
from warm import command

from vflsim.errors import ScenarioError, UnkeptStateError
from vflsim.scenario.models import Scenario
from vflsim.studies.checks.data import read_and_check
from vflsim.studies.checks.tryout import refuse_broken
from vflsim.vocabulary.execution_options import Execution

SHORT: dict[str, Any] = {"partition": {"clients": 2, "by": "columns"}, "stop": {"rounds": 6}}
EVERY: dict[str, Any] = {"evaluate": {"every": "1 rounds"}}


def remembering(way: str, **changes: Any) -> Scenario:
    path = "outside_protocols.remembering:Remember"
    return tiny({"mine": {"kind": "module", "path": path, "way": way}}, **{**SHORT, **EVERY, **changes})


@pytest.mark.sampled(7)
@pytest.mark.parametrize("way", LOST)
def test_a_change_that_checkpoints_do_not_keep_is_found_before_the_run(way: str) -> None:
    scenario = remembering(way)
    with pytest.raises(ScenarioError, match=r"operations of client-1 changed Remembering\.(mine|held)") as caught:
        refuse_broken(scenario, read_and_check(scenario))
    assert "protocols.mine" in str(caught.value)
    remedy = "copy features and labels" if "held" in str(caught.value) else 'self.kept["mine"]'
    assert remedy in str(caught.value)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["counter", "late"])
@pytest.mark.parametrize("every", ["1 rounds", "3 rounds"])
def test_a_change_that_comes_late_is_found_when_a_run_is_resumed(way: str, every: str, tmp_path: Path) -> None:
    scenario = remembering(way, evaluate={"every": every}, stop={"rounds": 9})
    _, last = whole(scenario)
    interrupted(scenario, tmp_path, [last - 1])
    with pytest.raises(UnkeptStateError) as caught:
        run(scenario, keeper=KeptAt(tmp_path))
    assert caught.value.what.startswith("operations of client-1 changed Remembering.mine, which checkpoints do not")
    assert 'self.kept["mine"]' in caught.value.remedy


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", SOUND)
@pytest.mark.parametrize("execution", [Execution(), Execution(eager=True)], ids=["batched", "eager"])
def test_what_checkpoints_keep_is_resumed_to_the_byte(way: str, execution: Execution, tmp_path: Path) -> None:
    scenario = remembering(way)
    assert_interruptions_change_no_byte(scenario, tmp_path, execution=execution)


def test_what_is_kept_changes_the_training() -> None:
    plain, kept = (run(remembering(way)).weights for way in ("nothing", "kept counter"))
    assert any(not tensor.equal(kept[name]) for name, tensor in plain.items())


def test_a_protocol_of_ones_own_in_python_is_watched_too() -> None:
    scenario = tiny("synchronous", **SHORT, **EVERY).with_protocols({"mine": Remember(way="counter")})
    with pytest.raises(ScenarioError, match=r"changed Remembering\.mine"):
        refuse_broken(scenario, read_and_check(scenario))


@pytest.mark.slow
def test_a_killed_run_with_kept_state_is_resumed_to_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vflsim: Callable[..., Ended]
) -> None:
    monkeypatch.chdir(tmp_path)
    entry = {"kind": "module", "path": "outside_protocols.remembering:Remember"}
    for way in ("kept list", "list"):
        said = raw({"mine": {**entry, "way": way}}, **{**SHORT, **EVERY, "stop": {"rounds": 60}})
        YAML().dump(said, Path(f"{way}.yaml"))
    refused = vflsim("run", "list.yaml")
    assert refused.status == 2
    assert "operations of client-1 changed Remembering.mine" in refused.err
    assert not Path("results").exists()
    assert vflsim("run", "kept list.yaml", "--out", "whole", "--checkpoint-every", "off").status == 0
    process = command(Path("errors"), "run", "kept list.yaml", "--out", "killed", "--checkpoint-every", "10 ms")
    while not (kept := list(Path("killed").rglob("*.checkpoint"))) and process.is_alive():
        time.sleep(0.01)
    process.kill()
    process.join()
    assert kept, Path("errors").read_text()
    assert vflsim("run", "kept list.yaml", "--out", "killed", "--resume").status == 0
    for name in ("metrics.parquet", "events.parquet", "weights.safetensors"):
        assert Path("killed/mine/seed-0", name).read_bytes() == Path("whole/mine/seed-0", name).read_bytes()
