"""Parts: immutable, strict about keys and numbers, documented by their own source."""

from typing import Annotated, Literal

import pytest
from pydantic import ConfigDict, Field, ValidationError

from vflsim.vocabulary import Part, Seconds, Shorthand, kind_from_text
from vflsim.vocabulary.base import as_in, meanings_of


class Walk(Part):
    kind: Literal["walk"] = "walk"
    pause: Seconds = 0.0
    """Rest between steps."""


class Run(Part):
    """Faster.

    Examples: ``{kind: run, speed: 2}``, ``{kind: run,
    speed: 3.5}``
    """

    kind: Literal["run"] = "run"
    speed: float = 1.0


class Trip(Part):
    gait: Annotated[Walk | Run, Field(discriminator="kind"), Shorthand(kind_from_text, {"enum": ["walk", "run"]})]


def test_parts_are_immutable_and_hashable():
    part = Walk(pause="5 ms")
    assert hash(part) == hash(Walk(pause=0.005))
    with pytest.raises(ValidationError, match="frozen"):
        part.pause = 1.0


@pytest.mark.parametrize("bad", [{"paus": 1}, {"speed": float("nan")}, {"speed": float("inf")}])
def test_unknown_keys_and_numbers_that_are_not_finite_are_refused(bad):
    with pytest.raises(ValidationError):
        Run(**bad)


def test_a_shorthand_means_its_long_form():
    assert Trip(gait="run") == Trip(gait={"kind": "run"}) == Trip(gait=Run())
    with pytest.raises(ValidationError, match=r"'fly'.*'walk', 'run'"):
        Trip(gait="fly")


def test_the_schema_documents_fields_asks_for_the_kind_and_offers_the_shorthand():
    schema = Trip.model_json_schema()
    assert schema["$defs"]["Walk"]["properties"]["pause"]["description"] == "Rest between steps."
    assert schema["$defs"]["Walk"]["required"] == ["kind"]
    assert schema["properties"]["gait"]["anyOf"][0] == {"enum": ["walk", "run"]}


class Hike(Walk):
    """What it does not annotate again keeps its meaning; a key of another name has the meaning of its field."""

    hold: float = Field(1.0, alias="for")
    """Hours on the way."""
    height: float = Field(0.0, description="Metres to climb.")
    weight: float = 0.0


class Climb(Hike):
    pause: Seconds = 1.0
    weight: float = 1.0
    """Of the rope, in kilograms."""


def test_keys_mean_what_stands_below_their_fields_in_the_class_that_annotates_them_last():
    assert meanings_of(Hike) == {
        "pause": "Rest between steps.",
        "for": "Hours on the way.",
        "height": "Metres to climb.",
    }
    assert meanings_of(Climb) == {
        "for": "Hours on the way.", "height": "Metres to climb.", "weight": "Of the rope, in kilograms."
    }  # fmt: skip
    keys = Climb.model_json_schema()["properties"]
    assert {key: keys[key].get("description") for key in keys} == {
        "kind": "Selects this kind.", "pause": None, **meanings_of(Climb)
    }  # fmt: skip


def test_a_class_without_source_has_keys_without_meanings():
    made = {"__name__": "made_up", "Part": Part}
    exec('class Made(Part):\n    key: int = 0\n    """Not to be read again."""', made)
    assert meanings_of(made["Made"]) == {}


def test_the_schema_has_the_examples_of_a_docstring():
    keys = Run.model_json_schema()["properties"]
    assert keys["speed"]["examples"] == [2, 3.5]
    assert keys["kind"]["examples"] == ["run"]
    assert "examples" not in Walk.model_json_schema()["properties"]["pause"]


def test_keys_of_an_override_are_described_as_those_that_they_override():
    class Override(Part):
        model_config = ConfigDict(json_schema_extra=as_in(Walk))
        pause: Seconds | None = None

    assert Override.model_json_schema()["properties"]["pause"]["description"] == "Rest between steps."
