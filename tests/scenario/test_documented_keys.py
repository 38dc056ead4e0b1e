"""Every key of a scenario has a description and an example, in its JSON Schema; every example is valid."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

import vflsim
from vflsim.kinds import TABLES
from vflsim.scenario.load import schema
from vflsim.scenario.models import Scenario
from vflsim.vocabulary import Part, Selection
from vflsim.vocabulary.base import examples_of
from vflsim.vocabulary.imported import ImportPath
from vflsim.vocabulary.metrics import COLUMNS
from vflsim.vocabulary.targets import Targets

SYMBOLS = {"symbols": {"i": 1, "m": 1, "N": 4}}
FILES = {
    "uploads.csv": "upload\n12.5\n17\n",
    "latencies.csv": "0 5 9\n5 0 7\n9 7 0\n",
    "rates.csv": "time,rate\n0,20\n30,2\n",
    "cellular.trace": "3\n9\n1000\n",
    "activations.csv": "0\n5\n9\n",
    "outages.csv": "20,25\n40,45\n",
}
"""The files that examples name and that are read when a part is."""


def kinds_of(part: type[Part]) -> Iterator[type[Part]]:
    for kind in part.__subclasses__():
        if kind.__module__.startswith("vflsim."):
            yield from (kind, *kinds_of(kind))


assert all(TABLES.values())  # has imported all kinds
DOCUMENTED = sorted({part for part in kinds_of(Part) if examples_of(part)}, key=lambda part: part.__name__)


def keys_in(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key of a JSON Schema, also of those inside, with its own schema."""
    for name, inside in node.items() if isinstance(node, dict) else enumerate(node if isinstance(node, list) else ()):
        if name == "properties":
            yield from ((f"{path}.{key}", of_key) for key, of_key in inside.items())
        yield from keys_in(inside, f"{path}.{name}")


def test_every_key_has_a_description_and_an_example() -> None:
    keys = dict(keys_in(schema()))
    assert len(keys) > 500
    assert not [key for key, of_key in keys.items() if not of_key.get("description")]
    assert not [key for key, of_key in keys.items() if not of_key.get("examples")]


@pytest.mark.parametrize(
    "kind", sorted({kind for table in TABLES.values() for kind in table}, key=lambda k: k.__name__)
)
def test_every_kind_has_an_example(kind: type[Part]) -> None:
    assert all(example["kind"] == kind.model_fields["kind"].default for example in examples_of(kind))
    assert examples_of(kind)


@pytest.mark.parametrize("part", DOCUMENTED, ids=lambda part: part.__name__)
def test_the_examples_of_a_part_are_valid(part: type[Part], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    for example in examples_of(part):
        if part is Scenario:
            vflsim.load(example)
        else:
            part.model_validate(example, context=SYMBOLS)


def test_the_examples_that_no_docstring_has_are_valid() -> None:
    keys = dict(keys_in(schema()))
    for name, kind in ((".select", Selection), (".path", ImportPath)):
        for example in {each for key, of_key in keys.items() if key.endswith(name) for each in of_key["examples"]}:
            TypeAdapter(kind).validate_python(example, context=SYMBOLS)
    targets = Targets.model_json_schema()["properties"]
    for metric in COLUMNS:
        for example in targets[metric]["examples"]:
            Targets.model_validate({metric: example}, context=SYMBOLS)
