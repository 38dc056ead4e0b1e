"""The question of twenty clients in ``docs/answers.md``: its scenario is what it asks about, and its sweep can run."""

import re

from pages import ROOT

import vflsim
from vflsim.scenario.resolve import party_timings
from vflsim.studies.plan import axes_of, planned

PAGE = (ROOT / "docs" / "answers.md").read_text(encoding="utf-8")


def test_the_question_of_the_page_is_asked_by_its_scenario_and_sweep() -> None:
    (text,) = re.findall(r"```yaml\n# which-t\.yaml\n(.*?)```", PAGE, re.DOTALL)
    scenario = vflsim.load(text)
    slow = [each for each in party_timings(scenario)[1:] if "pareto" in str(each)]
    assert (scenario.clients, len(slow), len(scenario.seeds)) == (20, 5, 5)
    (over,) = re.findall(r"vflsim sweep which-t\.yaml --over (\S+)", PAGE)
    plan = planned(text, axes_of(text, [over]))
    assert [point.values for point in plan.points] == [(1,), (2,), (5,), (15,)]
    assert plan.different_runs == 35  # of 80: t matters to one protocol alone
