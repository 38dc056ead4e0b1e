import contextlib
import math

import pytest
from hypothesis import given, strategies as st

from vflsim.errors import ScenarioError
from vflsim.vocabulary.plain_yaml import MAX_DEPTH, dump, parse_value

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
LOOK_ALIKES = st.sampled_from(
    [
        "yes",
        "no",
        "on",
        "null",
        "~",
        "true",
        "0:5",
        "1:30",
        "1e3",
        "0x1f",
        "010",
        "1_000",
        ".inf",
        "2024-01-01",
        "<<",
        "",
    ]
)


def value(text: str) -> object:
    return parse_value(text, "test.yaml")[0]


def refused(text: str) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        value(text)
    return caught.value


@given(PLAIN)
def test_what_is_dumped_parses_back(plain: object) -> None:
    back = value(dump(plain))
    assert back == plain
    assert repr(back) == repr(plain)  # 1, 1.0 and True are equal, and not the same


@given(LOOK_ALIKES)
def test_text_that_looks_like_something_else_stays_text(text: str) -> None:
    assert value(dump({"key": text})) == {"key": text}


def test_scalars_follow_yaml_1_2() -> None:
    text = "[yes, 0:5, 1:30, 010, 0o17, 0x1f, 1e-3, .inf, -.inf, ~, true, 2024-01-01, 1_000]"
    assert value(text) == ["yes", "0:5", "1:30", 10, 15, 31, 0.001, math.inf, -math.inf, None, True, "2024-01-01", 1000]


def test_keys_are_always_text() -> None:
    assert value("1: a\ntrue: b\n2.5: c\n") == {"1": "a", "true": "b", "2.5": "c"}


def test_every_value_knows_its_line() -> None:
    _, origins = parse_value("a: 1\nb:\n  - x\n  -\n    c: {d: 2}\n", "test.yaml")
    assert origins[("a",)] == 1
    assert origins[("b", 0)] == 3
    assert origins[("b", 1, "c", "d")] == 5


def test_anchors_are_copied_and_may_be_set_again() -> None:
    shared = value("a: &x {k: 1}\nb: *x\nc: &x 3\nd: *x\n")
    assert shared == {"a": {"k": 1}, "b": {"k": 1}, "c": 3, "d": 3}
    assert shared["a"] is not shared["b"]


def test_merge_keys_yield_to_what_is_written() -> None:
    assert value("a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}\n") == {"a": {"k": 1, "l": 2}, "b": {"k": 3, "l": 2}}


def test_a_billion_laughs_are_refused_at_once() -> None:
    lines = ["a: &a [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    assert "expands to more than 100,000 values" in refused("\n".join(lines)).what


@pytest.mark.parametrize("text", ["a: &a {b: *a}", "&a [*a]", "[" * 500 + "]" * 500, "- " * 500 + "x"])
def test_bottomless_nesting_is_refused(text: str) -> None:
    error = refused(text)
    assert "nested too deeply" in error.what
    assert str(MAX_DEPTH) in error.allowed + error.remedy


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system [ls]", "!mine 3", "!!set {a}", "!!binary aGk="])
def test_tags_that_build_something_are_refused(tag: str) -> None:
    error = refused(f"ok: 1\nkey: {tag}\n")
    assert error.where == "test.yaml:2"
    assert "tag" in error.what


@pytest.mark.parametrize("text", ["a: !!int x", "a: !!float x", "a: !!bool maybe", f"a: {'9' * 5000}"])
def test_scalars_that_their_tag_cannot_read_are_refused(text: str) -> None:
    assert "cannot be read as" in refused(text).what


def test_a_character_without_place_in_yaml_is_named_with_its_line() -> None:
    error = refused("a: 1\nb: \x00\n")
    assert error.where == "test.yaml:2"
    assert "U+0000" in error.what


@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@`#,? \n\t<~0.", max_size=60))
def test_any_text_gives_a_value_or_a_scenario_error(text: str) -> None:
    with contextlib.suppress(ScenarioError):
        value(text)


def test_whoever_has_a_value_may_change_it_although_its_text_is_remembered() -> None:
    text = "a: {b: [1, {c: 2}]}\nd: [3]\n"
    first, origins = parse_value(text, "test.yaml")
    first["a"]["b"][1]["c"], first["d"] = 5, []
    origins.clear()
    again, where = parse_value(text, "test.yaml")
    assert again == {"a": {"b": [1, {"c": 2}]}, "d": [3]}
    assert where[("a", "b", 1, "c")] == 1
    with pytest.raises(ScenarioError, match="more than 3 values"):  # another bound is another reading
        parse_value(text, "test.yaml", 3)
