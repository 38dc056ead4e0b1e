"""Whatever is done to a scenario: it loads, or ends in a ScenarioError. Never in anything else."""

import contextlib
import copy
import math
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st
from thorough import examples

from vflsim.errors import ScenarioError
from vflsim.scenario import dump, load

JARGON = ("pydantic", "Input should", "Value error", "union_tag", "errors.pydantic.dev", "function-")
WRONG = st.one_of(
    st.sampled_from([None, True, 0, -1, 2.5, math.inf, math.nan, 10**30]),
    st.sampled_from(["", "x", "all", "1..N", "i", "5 ms", "-3", "9**9**9", "é\n"]),
    st.sampled_from(
        [[], [1], ["a", None], [[]], {}, {"kind": "nope"}, {"kind": None}, {"kind": ["a"]}, {"a": {"b": []}}]
    ),
)


def places(raw: Any, loc: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    return [found for key, item in inside for found in [(*loc, key), *places(item, (*loc, key))]]


@st.composite
def mutated(draw: st.DrawFn, raw: dict[str, Any]) -> dict[str, Any]:
    raw = copy.deepcopy(raw)
    for _ in range(draw(st.integers(1, 3))):
        loc = draw(st.sampled_from(places(raw) or [("name",)]))
        where: Any = raw
        for step in loc[:-1]:
            where = where[step]
        what = draw(st.sampled_from(["delete", "replace", "add", "rename"]))
        if what == "delete":
            with contextlib.suppress(KeyError, IndexError):
                del where[loc[-1]]
        elif what == "rename" and isinstance(where, dict) and loc[-1] in where:
            where[str(loc[-1])[:-1] or "z"] = where.pop(loc[-1])
        elif what == "add" and isinstance(where, dict):
            where[draw(st.sampled_from(["extra", "kind", "select", "training", "stop", ""]))] = copy.deepcopy(
                draw(WRONG)
            )
        else:
            where[loc[-1]] = copy.deepcopy(draw(WRONG))
    return raw


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutated_scenario_loads_or_ends_in_a_scenario_error(data: st.DataObject, base: str) -> None:
    raw = data.draw(mutated(load(base).document.raw))
    try:
        scenario = load(raw)
    except ScenarioError as error:
        message = str(error)
        assert message
        assert not any(word in message for word in JARGON), message
    else:
        assert load(dump(scenario)) == scenario


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutilated_file_loads_or_ends_in_a_scenario_error(data: st.DataObject, base: str) -> None:
    start = data.draw(st.integers(0, len(base)))
    end = data.draw(st.integers(start, min(len(base), start + 12)))
    patch = data.draw(st.text(alphabet="ab19:-[]{}&*!'\"#, \n\t.N/", max_size=6))
    with contextlib.suppress(ScenarioError):
        load(base[:start] + patch + base[end:] + "\n")
