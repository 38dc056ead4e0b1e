"""Code from outside is tried out before a run: does it repeat itself, from a checkpoint, too?"""

from __future__ import annotations

from typing import Any

import pytest
from outside_protocols.remembering import SOUND
from outside_worlds import PATHS, outside
from protocols_by_kind import KINDS
from tiny_worlds import RANDOM_TIMING, raw

from vflsim.errors import ScenarioError
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.studies.checks import tryout
from vflsim.studies.checks.data import read_and_check
from vflsim.studies.checks.tryout import refuse_broken

SHORT: dict[str, Any] = {"partition": {"clients": 2, "by": "columns"}}


def mine(name: str, **keys: Any) -> dict[str, Any]:
    entry = {"kind": "module", "path": f"outside_protocols.remembering:{name}", **keys}
    return raw({"mine": entry}, timing=RANDOM_TIMING, **SHORT)


def tried_out(scenario: Scenario) -> None:
    refuse_broken(scenario, read_and_check(scenario))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"name": "Remember", "way": "list"}, ["operations of client-1 changed Remembering.mine", 'self.kept["mine"]']),
        ({"name": "Remember", "way": "generator of its own"}, ["Remembering.mine", "self.kept"]),
        ({"name": "Broken", "how": "forgetful"}, ["resumed from a checkpoint differs", "the weights ", "kept"]),
        ({"name": "Broken", "how": "hidden"}, ["resumed from a checkpoint differs", "self.kept"]),
        ({"name": "Broken", "how": "unseeded"}, ["two runs with the same seed differ", "vflsim.streams"]),
        ({"name": "Broken", "how": "keeping"}, ["cannot be resumed: kept['seen'] is a set", "tensors, numbers"]),
    ],
)
def test_code_that_does_not_repeat_itself_is_refused_before_the_run(keys: dict[str, str], words: list[str]) -> None:
    scenario = load(mine(**keys))
    with pytest.raises(ScenarioError) as caught:
        tried_out(scenario)
    printed = f"{caught.value} {caught.value.remedy} {caught.value.allowed}"
    assert [word for word in ["protocols.mine", *words] if word not in printed] == [], printed
    refuse_broken(scenario, read_and_check(scenario), timing_only=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", SOUND)
def test_code_that_repeats_itself_passes(way: str) -> None:
    scenario = load(mine("Remember", way=way))
    tried_out(scenario)


@pytest.mark.parametrize("kind", PATHS)
def test_so_do_other_protocols_from_outside(kind: str) -> None:
    scenario = load(outside(kind, timing=RANDOM_TIMING))
    tried_out(scenario)


def test_rounds_that_take_long_are_tried_out_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tryout, "BUDGET_S", 0.0)
    monkeypatch.setattr(tryout, "FIRST", 100)
    monkeypatch.setattr(tryout, "TRAINED", 1_000)
    scenario = load(mine("Broken", how="hidden"))
    with pytest.raises(ScenarioError, match="resumed from a checkpoint differs"):
        tried_out(scenario)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("kind", KINDS)
def test_protocols_of_vflsim_are_not_run(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tryout, "run_protocol")
    scenario = load(raw({"it": KINDS[kind]}))
    tried_out(scenario)
