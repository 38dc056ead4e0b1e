"""A stop rule on metrics, of vflsim or by path: it ends a run with a reason, and a resumed run at the same place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kept_runs import assert_interruptions_change_no_byte
from own_mistakes import assert_refused_with_file_line_and_remedy, entry
from tiny_worlds import metrics, raw, run, tiny

import vflsim
from vflsim.errors import RunError, ScenarioError
from vflsim.simulation.vectorised.eligibility import obstacles
from vflsim.studies.runs.identity import ends_alike, hindrance
from vflsim.vocabulary.stop_rule import NoImprovement

EVERY = {"every": "2 rounds"}


def own(path: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "module", "path": f"own_stop_rules:{path}", **keys}


def stop(**rules: Any) -> dict[str, Any]:
    return {"rounds": 60, "rules": rules}


@pytest.mark.parametrize("kind", ["synchronous", "asynchronous", "centralised"])
def test_a_rule_ends_a_run_at_the_row_that_it_names(kind: str) -> None:
    outcome = run(tiny(kind, stop=stop(low=own("Below", share=0.97)), evaluate=EVERY))
    found = metrics(outcome)["test_loss"]
    assert outcome.info.stop_reason == "low"
    assert outcome.info.stop_detail == f"low: test_loss is {found.iloc[-1]:.3f} after {len(found)} rows"
    assert found.iloc[-1] < 0.97 * found.iloc[0]
    assert (found.iloc[:-1] >= 0.97 * found.iloc[0]).all()
    assert outcome.info.counts["rounds"] < 60
    assert "low: test_loss is" in outcome.note


def test_rules_change_nothing_before_the_end() -> None:
    never = {"rounds": 12, "rules": {"never": own("After", rows=99)}}
    plain, ruled, short = (
        metrics(run(tiny("synchronous", stop=said, evaluate=EVERY)))
        for said in ({"rounds": 12}, never, stop(soon=own("After", rows=3)))
    )
    assert ruled.equals(plain)
    assert short["test_loss"].equals(plain["test_loss"].iloc[:3])


def test_a_run_that_diverges_may_end_early() -> None:
    said = {"rounds": 60, "rules": {"worse": {"kind": "exceeds", "times": 3}}}
    outcome = run(tiny("synchronous", stop=said, evaluate=EVERY, training__server_optimizer={"kind": "sgd", "lr": 60}))
    assert outcome.info.stop_reason == "worse"
    found = metrics(outcome)["test_loss"]
    assert found.iloc[-1] > 3 * found.iloc[0] >= found.iloc[:-1].max()


def test_an_interrupted_run_ends_where_one_that_was_not_ends(tmp_path: Path) -> None:
    said = {"evaluate": {"every": "3 rounds"}, "stop": stop(low=own("Below", share=0.97), late=own("After", rows=15))}
    scenario = tiny("asynchronous", **said)
    outcome = assert_interruptions_change_no_byte(scenario, tmp_path, at=(0.3, 0.99))
    assert outcome.info.stop_reason in ("low", "late")


def test_results_tell_the_rule_and_its_words(tmp_path: Path) -> None:
    scenario = vflsim.load(raw("synchronous", stop=stop(soon=own("After", rows=3)), evaluate=EVERY, seeds=[0, 1]))
    vflsim.run(scenario, out=tmp_path / "out")
    said = json.loads((tmp_path / "out/synchronous/seed-1/run.json").read_text())
    assert (said["stop_reason"], said["stop_detail"]) == ("soon", "soon: 3 rows")
    assert "soon" in (tmp_path / "out/summary.md").read_text()


def test_early_stopping_waits_for_so_many_evaluations() -> None:
    rule = NoImprovement(metric="test_accuracy", evaluations=2, least=0.01)
    values = [0.1, 0.2, 0.205, 0.3, 0.3, 0.305, 0.4]
    rows = [{"test_accuracy": value} for value in values]
    assert [bool(rule.ends(rows[: n + 1])) for n in range(len(rows))] == [False] * 5 + [True, False]
    assert rule.ends(rows[:6]) == "test_accuracy has not been better than 0.3 for 2 evaluations"
    falling = NoImprovement(metric="test_loss", evaluations=1)
    assert not falling.ends([{"test_loss": 3}, {"test_loss": 2}])
    assert falling.ends([{"test_loss": 3}, {"test_loss": 2}, {"test_loss": 2}])


def test_rules_alone_end_no_run_without_training(tmp_path: Path) -> None:
    scenario = tiny("synchronous", stop={"rules": {"soon": own("After", rows=3)}}, record="rounds")
    with pytest.raises(ScenarioError, match="timing-only run"):
        vflsim.run(scenario, out=tmp_path, timing_only=True)
    more = tiny("synchronous", stop=stop(soon=own("After", rows=2)), record="rounds")
    assert run(more, timing_only=True).info.counts["rounds"] == 60
    assert not [each for each in obstacles(more, "synchronous") if each.loc[0] == "stop"]


def test_a_continued_run_keeps_to_its_rules() -> None:
    def rules(**said: Any) -> dict[str, Any]:
        return tiny("synchronous", stop={"rounds": 99, "rules": said} if said else {"rounds": 99}).stop.plain()

    one, other, none = rules(a=own("After", rows=5)), rules(a=own("After", rows=4)), rules()
    end = {"time": 1.0, "rounds": 9, "updates": 36, "wall_clock": 1.0}
    assert not hindrance(end, one, one)
    assert hindrance(end, one, other) == "rules"
    assert hindrance(end, none, one) == "rules"
    assert not hindrance(end, one, none)
    assert ends_alike("a", end, one, one)
    assert not ends_alike("a", end, one, other)
    assert not ends_alike("a", end, one, none)


WRONG = {
    "F9": (r"F9 fails: KeyError: 'test_f9'(.|\n)*own_stop_rules\.py:\d+, ends", "mend it"),
    "Column": (r"there is no column 'test_f9'(.|\n)*test_loss, test_accuracy", "choose one"),
    "Yes": (r"Yes\.ends returned False(.|\n)*a text", "ends"),
    "Counting": (r"Counting\.ends gives 'often', then '' about the same rows(.|\n)*no state", "ends"),
    "Writes": (r"Writes fails: TypeError: 'mappingproxy'", "mend it"),
    "After, rows: 0": (r"rows: 0 is out of range|rows", "rows"),
    "After, row: 1": (r"there is no key 'row'", "rows"),
    "Row": (r"but no StopRule(.|\n)*derive it from", "StopRule"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_rule_is_told_with_file_line_and_remedy(name: str, tmp_path: Path) -> None:
    rows = "" if ", rows: " in name else "rows: 3"
    section = ["stop:", "  rounds: 9", "  rules:", f"    it: {entry('own_stop_rules', name, rows)}"]
    assert_refused_with_file_line_and_remedy(tmp_path, section, "stop.rules.it", WRONG[name])


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"rounds": own("After", rows=3)}, r"'rounds' cannot name a stop rule"),
        ({}, r"stop\.rules"),
        ({"a": {"kind": "no_improvement", "metric": "test_f9"}}, r"there is no column 'test_f9'"),
        (
            {"a": {"kind": "no_improvement", "metric": "updates"}},
            r"which direction(.|\n)*better: higher",
        ),
        ({"a": {"kind": "patience"}}, r"there is no kind 'patience'(.|\n)*no_improvement, exceeds"),
    ],
)
def test_a_mistake_with_rules_is_told_at_load(rules: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        tiny("synchronous", stop={"rounds": 9, "rules": rules})


def test_a_rule_that_fails_in_a_run_names_its_place() -> None:
    words = r"the stop rule LateFailure fails: LookupError: many rounds(.|\n)*own_stop_rules\.py:\d+, ends"
    with pytest.raises(RunError, match=words):
        run(tiny("synchronous", stop=stop(late=own("LateFailure", rows=3)), evaluate=EVERY))
