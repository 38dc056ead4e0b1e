import pytest
from protocols_by_kind import KINDS, SOME
from tiny_worlds import data_of, raw, tiny

from vflsim.results.store.cautions import cautions
from vflsim.scenario.load import as_scenario
from vflsim.simulation.run import run_protocol

UP_FOR_A_MOMENT = {"kind": "intervals", "down": [["1 ms", "1 s"]], "period": "1 s", "interrupted": "lost"}


def test_a_run_without_a_round_has_scores_of_untrained_models() -> None:
    clients = [{"select": "all", "compute": "2 ms", "availability": UP_FOR_A_MOMENT}]
    scenario = tiny(timing={"server": {"compute": "1 ms"}, "clients": clients}, stop={"time": "3 s"})
    outcome = run_protocol(scenario, "synchronous", 0, data_of(scenario))
    assert outcome.info.counts["rounds"] == 0
    assert outcome.note.startswith(
        "no round has ended and no client has done a step, so the scores are those of untrained models: see who waits"
    )


@pytest.mark.parametrize(
    ("counts", "start"),
    [
        ({"rounds": 7, "updates": 0}, "no client has done a step in 7 rounds, so only the server has learnt"),
        ({"rounds": 0, "updates": 0}, "no round has ended and no client has done a step, so the scores"),
        ({"rounds": 0, "updates": 3}, ""),
        ({"rounds": 3, "updates": 1}, ""),
    ],
)
def test_what_nobody_has_done_is_said(counts: dict[str, int], start: str) -> None:
    scenario = tiny(stop={"rounds": 1})
    info = run_protocol(scenario, "synchronous", 0, data_of(scenario)).info
    found = [*cautions(info.model_copy(update={"counts": counts}))]
    assert [each[: len(start)] for each in found] == ([start] if start else [])


def test_initial_models_that_meet_the_target_are_said() -> None:
    scenario = tiny(stop={"target": {"test_accuracy": 0.0, "for": "1 evaluations"}, "rounds": 3})
    outcome = run_protocol(scenario, "synchronous", 0, data_of(scenario))
    assert outcome.note == "the initial models meet the target, so nothing was trained: choose a harder one"


@pytest.mark.parametrize("name", SOME)
def test_an_ordinary_run_needs_no_caution(name: str) -> None:
    scenario = as_scenario(raw({"it": KINDS[name]}, stop={"rounds": 6}))
    outcome = run_protocol(scenario, "it", 0, data_of(scenario), timing_only=True)
    assert [*cautions(outcome.info)] == []
