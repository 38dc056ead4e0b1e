"""Availabilities, activations and capacities by path: as built-in ones of the same times, and tried out at load."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from closed_forms_of import reason
from kept_runs import assert_interruptions_change_no_byte
from own_mistakes import assert_refused_with_file_line_and_remedy
from tiny_worlds import RANDOM_TIMING, events, rounds, run, same_weights, tiny

from vflsim.errors import ScenarioError
from vflsim.scenario.resolve import run_text
from vflsim.simulation.vectorised.eligibility import obstacles


def own(path: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "module", "path": f"own_timing:{path}", **keys}


def timed(**keys: Any) -> dict[str, Any]:
    """Random timing, with more for every client."""
    timing = {**RANDOM_TIMING}
    timing["clients"] = [*RANDOM_TIMING["clients"], {"select": "all", **keys}]
    return timing


BREAKS = {"first": "8 ms", "lasts": "9 ms", "every": "40 ms"}
INTERVALS = {"kind": "intervals", "down": [["8 ms", "17 ms"]], "period": "40 ms"}
PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "resumed": (
        {"availability": own("Breaks", **BREAKS)},
        {"availability": {**INTERVALS, "interrupted": "resumed"}},
    ),
    "lost": (
        {"availability": own("Breaks", **BREAKS, interrupted="lost")},
        {"availability": {**INTERVALS, "interrupted": "lost"}},
    ),
    "ticks": (
        {"activation": own("Ticks", every="10 ms")},
        {"activation": {"kind": "schedule", "times": ["0 s"], "period": "10 ms", "busy": "queue"}},
    ),
    "fading": (
        {"link": {"up": own("Fading", rate="80 kbps", every="20 ms")}},
        {"link": {"up": {"kind": "steps", "steps": [["0 s", "80 kbps"], ["20 ms", "40 kbps"]], "period": "40 ms"}}},
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("protocol", ["synchronous", "asynchronous"])
def test_a_part_from_outside_does_what_the_built_in_one_of_the_same_times_does(name: str, protocol: str) -> None:
    mine, built_in = (run(tiny(protocol, timing=timed(**keys))) for keys in PAIRS[name])
    plain = run(tiny(protocol, timing=RANDOM_TIMING))
    assert events(mine).equals(events(built_in))
    assert rounds(mine).equals(rounds(built_in))
    assert same_weights(mine, built_in)
    assert not events(mine).equals(events(plain))


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {"availability": own("Drawn", **BREAKS)},
        {"availability": own("Drawn", **BREAKS, interrupted="lost")},
        {"activation": own("DrawnTicks", every="10 ms")},
        PAIRS["fading"][0],
    ],
    ids=["drawn", "drawn, lost", "drawn ticks", "fading"],
)
def test_an_interrupted_run_writes_the_bytes_of_one_that_was_not(keys: dict[str, Any], tmp_path: Path) -> None:
    scenario = tiny("asynchronous", timing=timed(**keys), stop={"rounds": 30})
    assert_interruptions_change_no_byte(scenario, tmp_path)


@pytest.mark.parametrize("name", PAIRS)
def test_the_vectorised_path_and_closed_forms_refuse_them(name: str) -> None:
    scenario = tiny("synchronous", timing=timed(**PAIRS[name][0]))
    assert [problem for problem in obstacles(scenario, "synchronous") if problem.loc[0] == "timing"]
    words = reason(tiny({"it": {"kind": "synchronous"}}, timing=timed(**PAIRS[name][0])))
    assert re.search("not always available|depend on the time|changes in time|waits? .*others|queue", words)


def test_runs_depend_on_the_parts_by_path() -> None:
    for mine, _ in PAIRS.values():
        assert "own_timing" in run_text(tiny("synchronous", timing=timed(**mine)), "synchronous")


AWAY = 'availability: {{kind: module, path: "own_timing:{}", first: 8 ms, lasts: 9 ms, every: 40 ms{}}}'
TICKS = 'activation: {{kind: module, path: "own_timing:{}", every: 10 ms{}}}'
LINK = 'link: {{up: {{kind: module, path: "own_timing:{}", rate: 80 kbps, every: 20 ms{}}}}}'
WRONG = {
    ("Half", AWAY): (r"Half\.profile has the value 0\.5(.|\n)*1 while the client is up", "profile"),
    ("Never", AWAY): (r"Never\.profile is 0 for ever(.|\n)*some time up", "profile"),
    ("Numbers", AWAY): (r"Numbers\.profile returned a list(.|\n)*StepProfile", "profile"),
    ("Standing", AWAY): (r"Standing\.profile: the next change after 0\.0 s is at 0\.0 s(.|\n)*later", "profile"),
    ("Global", AWAY): (r"Global\.profile is [01] from .* and [01] from .* asked again(.|\n)*generator", "profile"),
    ("Earlier", AWAY): (r"Earlier\.profile is 0 from .* and 0 from .* asked again(.|\n)*generator", "profile"),
    ("Raising", AWAY): (r"Raising fails: LookupError: no such day(.|\n)*own_timing\.py:\d+, profile", "mend it"),
    ("Endless", AWAY): (r"Endless\.cycle_s is inf(.|\n)*finite", "cycle_s"),
    ("Breaks, until: 3", AWAY): (r"there is no key 'until'", "until"),
    ("Breaks, interrupted: maybe", AWAY): (r"interrupted: 'maybe'(.|\n)*'?lost'?(.|\n)*'?resumed'?", "interrupted"),
    ("Ticks", AWAY): (r"own_timing:Ticks is a class but no Availability(.|\n)*derive it from", "Availability"),
    ("Backwards", TICKS): (r"Backwards\.process has an arrival at 1 s after one at 2 s(.|\n)*in order", "process"),
    ("Empty", TICKS): (r"Empty\.process has an empty block(.|\n)*at least one arrival", "process"),
    ("Lists", TICKS): (r"Lists\.process has a block(.|\n)*two arrays", "process"),
    ("NoProcess", TICKS): (r"NoProcess\.process returned a list_iterator(.|\n)*ActivationProcess", "process"),
    ("GlobalTicks", TICKS): (
        r"GlobalTicks\.process draws from NumPy's global generator(.|\n)*generator\(seed",
        "process",
    ),
    ("TooLate", TICKS): (r"TooLate\.last is 1e-09 s, and an arrival comes at", "last"),
    ("Breaks", TICKS): (r"own_timing:Breaks is a class but no Activation", "Activation"),
    ("Dry", LINK): (r"Dry\.profile is 0 at all times(.|\n)*above 0", "profile"),
    ("Rate", LINK): (r"Rate\.profile returned a float(.|\n)*StepProfile(.|\n)*Flat", "profile"),
    ("GlobalRate", LINK): (r"GlobalRate\.profile is .* from 0 to .* when it is asked again", "profile"),
    ("Steps", LINK): (r"Steps fails: ValueError: the first time is 1\.0(.|\n)*allowed: 0(.|\n)*raised in", "mend it"),
    ("Fading, rate: 3", LINK): (r"rate", "rate"),
}


@pytest.mark.parametrize(("name", "form"), WRONG)
def test_a_mistake_is_told_with_file_line_and_remedy(name: str, form: str, tmp_path: Path) -> None:
    attribute, _, more = name.partition(", ")
    said = form.format(attribute, f", {more}" if more else "")
    if more.partition(":")[0] in ("interrupted", "rate") and f"{more.partition(':')[0]}:" in form:
        said = form.format(attribute, "").replace("rate: 80 kbps", more)
    section = ["timing:", "  clients:", "    - select: all", f"      {said}"]
    assert_refused_with_file_line_and_remedy(tmp_path, section, "timing.clients.0", WRONG[name, form])


def test_an_availability_has_to_say_what_becomes_of_work(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"Unsaid\.interrupted is None\n  allowed: lost, resumed") as caught:
        tiny("synchronous", timing=timed(availability=own("Unsaid")))
    assert "add `interrupted: Interrupted`" in str(caught.value)
