"""What a run depends on: the rest of a scenario changes none of its bytes."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kept_runs import files_of
from protocols_by_kind import KINDS
from tiny_worlds import NEEDS_ACTIVE, RANDOM_TIMING, raw, run, tiny

from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import course_digest, run_part, run_text
from vflsim.simulation.run import Outcome

STUDY: dict[str, Any] = {"timing": RANDOM_TIMING, "stop": {"rounds": 4}, "evaluate": {"every": "2 rounds"}}


@pytest.mark.slow
@pytest.mark.parametrize("active", [False, True], ids=["passive server", "active server"])
def test_a_run_among_others_has_the_bytes_of_the_run_alone(active: bool, tmp_path: Path) -> None:
    kinds = {name: said for name, said in KINDS.items() if (said["kind"] in NEEDS_ACTIVE) is active}
    many = load(raw(kinds, **STUDY, target={"test_accuracy": 0.5}, seeds=[3, 1]))
    for name in kinds:
        part = run_part(many, name)
        alone = load({"name": "alone", "protocols": {"it": part.pop("protocol")}, "seeds": [1], **part})
        assert run_text(alone, "it") == run_text(many, name)
        one, other = run(many, name, 1), run(alone, "it", 1)
        assert files(one, tmp_path / name, many) == files(other, tmp_path / f"{name}-alone", alone), name


def files(outcome: Outcome, folder: Path, scenario: Scenario) -> dict[str, bytes]:
    return {name: content for name, content in files_of(outcome, folder, scenario).items() if name != "run.json"}


TWO = {"wait": {"kind": "synchronous"}, "ignore": {"kind": "ignore", "deadline": "(2*slow) ms"}}
made = partial(raw, TWO, constants={"base": 3, "slow": "2*base", "other": 1}, **STUDY)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "another"},
        {"seeds": [5, 6]},
        {"target": {"test_accuracy": 0.9}},
        {"budget": {"time": "10 min"}},
        {"protocols": {"wait": TWO["wait"]}},
        {"protocols": {**TWO, "wait": {**TWO["wait"], "stop": {"rounds": 4}}}},
        {"protocols": {**TWO, "ignore": {"kind": "ignore", "fastest": 2}}},
        {"constants": {"base": 4, "slow": 8, "other": 1}},
    ],
    ids=str,
)
def test_what_a_run_does_not_depend_on_leaves_its_text_as_it_is(changes: dict[str, Any]) -> None:
    assert run_text(load({**made(), **changes}), "wait") == run_text(load(made()), "wait")


@pytest.mark.parametrize(
    "changes",
    [
        {"training__batch": 30},
        {"data__train_rows": 80},
        {"partition__clients": 3},
        {"stop": {"rounds": 5}},
        {"evaluate": {"every": "3 rounds"}},
        {"record": "summary"},
        {"codec": "float16"},
        {"constants": {"base": 4, "slow": "2*base", "other": 1}},
        {"protocols": {**TWO, "ignore": {"kind": "ignore", "deadline": "3 ms"}}},
        {"protocols": {**TWO, "ignore": {**TWO["ignore"], "training": {"batch": 30}}}},
    ],
    ids=str,
)
def test_everything_else_changes_it(changes: dict[str, Any]) -> None:
    said = made(**{key: value for key, value in changes.items() if key not in {"protocols", "constants"}})
    said |= {key: value for key, value in changes.items() if key in {"protocols", "constants"}}
    assert run_text(load(said), "ignore") != run_text(load(made()), "ignore")


def test_an_override_of_null_leaves_a_criterion_out() -> None:
    own = {"it": {"kind": "synchronous", "stop": {"rounds": None, "time": "1 s"}}}
    assert run_part(load(raw(own, **STUDY)), "it")["stop"] == {"time": "1 s"}


def test_a_module_of_ones_own_may_use_every_constant() -> None:
    client = {"kind": "module", "path": "normed_module:Normed", "embedding": 6}
    own = {"it": {"kind": "synchronous", "models": {"client": client}}}
    said = {"constants": {"unused": 3}}
    assert run_part(load(raw(own, **STUDY, **said)), "it")["constants"] == {"unused": 3}
    assert "constants" not in run_part(tiny(**said), "synchronous")


def test_a_course_is_the_same_under_another_name_to_a_later_end_and_in_another_folder() -> None:
    def digest(folder: str = "/a", **changes: Any) -> str:
        data = {"file": f"{folder}/rows.csv", "label": "y", "task": "binary"}
        return course_digest(load({**made(data=data), **changes}), "wait")

    same: list[dict[str, Any]] = [{"name": "x"}, {"stop": {"rounds": 9}}, {"folder": "/b"}]
    assert {digest(**each) for each in same} == {digest()}
    others = [{"record": "rounds"}, {"timing": {}}, {"protocols": {"wait": {**TWO["wait"], "codec": "float16"}}}]
    assert len({digest(), *(digest(**each) for each in others)}) == 4
