import pytest

from vflsim.errors import ScenarioError
from vflsim.scenario.document import parse
from vflsim.scenario.overrides import Overrides, apply

TEXT = "a: {b: 1, c: [x, {d: 2}]}\ne: word\n"


def applied(overrides: Overrides) -> dict[str, object]:
    return apply(parse(TEXT), overrides).raw


def refused(overrides: Overrides) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        apply(parse(TEXT), overrides)
    return caught.value


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("a.b=2", 2),
        ("a.b=5 ms", "5 ms"),
        ("a.b=0:5", "0:5"),
        ("a.b=[1, 2]", [1, 2]),
        ("a.b={x: 1, y: z}", {"x": 1, "y": "z"}),
        ("a.b=x=y", "x=y"),
        ("a.b='3'", "3"),
        (" a.b = 3 ", 3),
    ],
)
def test_values_are_read_as_yaml(override: str, value: object) -> None:
    assert applied([override])["a"]["b"] == value  # type: ignore[index]


def test_a_mapping_of_overrides_takes_text_and_plain_values() -> None:
    raw = applied({"a.b": 7, "e": "[1, 2]", "f": (1, 2)})
    assert raw == {"a": {"b": 7, "c": ["x", {"d": 2}]}, "e": [1, 2], "f": [1, 2]}


def test_positions_lead_into_lists() -> None:
    assert applied(["a.c.1.d=3", "a.c.0=y"])["a"] == {"b": 1, "c": ["y", {"d": 3}]}


def test_mappings_on_the_way_are_made() -> None:
    assert applied(["new.deep.key=1"])["new"] == {"deep": {"key": 1}}


def test_null_removes() -> None:
    assert applied(["a.b=null", "a.c.0=null", "e=~"]) == {"a": {"c": [{"d": 2}]}}


def test_later_overrides_see_earlier_ones() -> None:
    assert applied(["a={}", "a.z=1", "a.z=2"])["a"] == {"z": 2}


def test_the_document_itself_stays_as_it_was() -> None:
    document = parse(TEXT)
    apply(document, ["a.b=2"])
    assert document.raw == parse(TEXT).raw


def test_an_override_is_what_a_problem_is_blamed_on() -> None:
    document = apply(parse(TEXT), ["a.c={d: 1}", "f.g.h=1"])
    assert document.where(("a", "c", "d")) == "--set a.c={d: 1}"
    assert document.where(("f",)) == "--set f.g.h=1"
    assert document.where(("a", "b")) == "scenario:1"


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("a.b", "no equals sign"),
        ("=1", "needs a key"),
        ("a..b=1", "needs a key"),
        ("a.b=", "no value"),
        ("a.b=[1", "ends inside"),
        ("a.b=!!python/name:x", "tag"),
        ("e.f=1", "e has no keys: it is 'word'"),
        ("a.c.2=1", "'2' is no position"),
        ("a.c.x=1", "'x' is no position"),
        ("zzz=null", "no zzz to remove"),
    ],
)
def test_an_override_that_cannot_be_done_is_named(override: str, what: str) -> None:
    error = refused([override])
    assert what in error.what
    assert error.where == f"--set {override}"
    assert error.exit_code == 2


def test_a_single_text_is_one_override() -> None:
    assert applied("a.b=3")["a"]["b"] == 3  # type: ignore[index]
