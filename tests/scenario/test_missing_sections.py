"""A section that is left out is answered with one that can be pasted."""

import re
from typing import Any

import pytest
from ruamel.yaml import YAML
from tiny_worlds import raw

from vflsim.errors import ScenarioError
from vflsim.scenario import load


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(document)
    return str(caught.value)


def pasted(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the line between the backticks of its error."""
    line = re.search(r"add `(.*)`", refusal(document))
    assert line is not None
    return {**document, **YAML(typ="safe").load(line[1])}


@pytest.mark.parametrize("section", ["name", "data", "partition", "models", "training", "protocols", "stop"])
def test_the_remedy_for_a_missing_section_can_be_pasted(section: str) -> None:
    document = raw(timing={"clients": {"compute": "1 ms"}})
    del document[section]
    assert load(pasted(document)).clients == 4


@pytest.mark.parametrize(
    "data", [{"name": "handwritten"}, {"parties": ["a.csv", "b.csv"], "label": "y", "id": "i"}], ids=str
)
def test_data_that_have_a_part_for_every_client_are_partitioned_by_them(data: dict[str, Any]) -> None:
    document = raw(data=data, timing={})
    del document["partition"]
    assert "add `partition: {by: views}`" in refusal(document)
    assert load(pasted(document)).clients == {"handwritten": 6}.get(data.get("name", ""), 2)


def test_a_partition_that_does_not_say_how_many_is_told_how_to_say_it() -> None:
    assert "add `clients: 4`" in refusal(raw(partition={}))
