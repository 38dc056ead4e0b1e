"""``vflsim.protocol`` is all that classes of users need: complete, documented, and enough for those of the tests."""

import ast
import inspect
from pathlib import Path

import pytest

from vflsim import protocol
from vflsim.world.node import Node

ROOT = Path(__file__).parents[1]
OWN = (
    "int8_codec",
    "own_computes",
    "own_losses",
    "own_measures",
    "own_mechanisms",
    "own_metrics",
    "own_stop_rules",
    "own_timing",
)
OUTSIDE = [
    *sorted((ROOT / "tests/support/outside_protocols").glob("*.py")),
    *(ROOT / f"tests/support/{name}.py" for name in OWN),
]
PAGES = [
    "adding-a-protocol.md",
    "own-parts.md",
    "tutorial/first-scenario.md",
]
NAMES = [name for name in vars(protocol) if not name.startswith("_")]
VERBS = [name for name in dir(Node) if not name.startswith("_") and callable(getattr(Node, name))]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: path.stem)
def test_classes_from_outside_import_from_the_facade_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    assert {module for module in modules if module.startswith("vflsim")} <= {"vflsim.protocol"}


@pytest.mark.parametrize("page", PAGES)
def test_pages_define_classes_with_the_facade_alone(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    before_classes = {
        line.split()[1] for line in text.splitlines() if line.startswith("from vflsim") and " import " in line
    }
    assert "vflsim.protocol" in before_classes
    assert before_classes <= {
        "vflsim.protocol",
        "vflsim.scenario.models",
        "vflsim.scenario",
        "vflsim.results.read",
        "vflsim.plotting",
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    thing = getattr(protocol, name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert (thing.__doc__ or "").strip()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example(verb: str) -> None:
    documented = inspect.getdoc(getattr(Node, verb)) or ""
    assert "Example: ``" in documented
    assert verb in documented.split("Example: ``")[1]


def test_the_example_of_the_facade_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny_worlds import rounds, run, tiny

    code = inspect.cleandoc((protocol.__doc__ or "").split("::\n", 1)[1].split("\n\nA scenario names", 1)[0])
    (tmp_path / "resting_of_the_page.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    entry = {"resting": {"kind": "module", "path": "resting_of_the_page:Resting", "rest": "1 s"}}
    found = run(tiny(entry, stop={"rounds": 3}), timing_only=True)
    assert len(rounds(found)) == 3
