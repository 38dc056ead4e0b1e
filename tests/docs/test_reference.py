"""The reference of the site has every part of a scenario on one page, and every command with all its options."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT
from typer.main import get_command

from vflsim.attacks import ATTACKS
from vflsim.cli import app
from vflsim.kinds import TABLES
from vflsim.results.store.pages import RunInfo
from vflsim.results.store.schema import CURVES, ENERGY_SCHEMA, EVENTS, metrics_schema, rounds_schema
from vflsim.scenario.load import schema


@pytest.fixture(autouse=True)
def _generators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_site"))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "_site"))
        from scenario_reference import scenario_pages

        return scenario_pages()


def parts_of(node: Any) -> Iterator[str]:
    """The names of the parts in a JSON Schema."""
    for name, inside in node.items() if isinstance(node, dict) else enumerate(node if isinstance(node, list) else ()):
        if name == "properties" and isinstance(node.get("title"), str):
            yield node["title"]
        yield from parts_of(inside)


@pytest.mark.slow
def test_every_part_of_a_scenario_is_on_one_page_of_the_reference(pages: dict[str, str]) -> None:
    anchors = re.findall(r"^##+ .* \{#(\S+)\}$", "\n".join(pages.values()), re.MULTILINE)
    assert len(anchors) == len(set(anchors))
    kinds = {kind.__name__ for table in TABLES.values() for kind in table}
    parts = {*parts_of(schema()), *schema()["$defs"]} - {"vflsim scenario", "JsonValue"}
    assert {part.lower() for part in parts | kinds} <= set(anchors)


def test_a_key_has_type_unit_default_meaning_and_example(pages: dict[str, str]) -> None:
    def row(page: str, part: str, key: str) -> list[str]:
        section = pages[page].partition(f"{{#{part}}}")[2]
        return next(line for line in section.splitlines() if line.startswith(f"| `{key}` ")).strip("| ").split(" | ")

    assert row("stop", "precision", "confidence")[2:] == ["`0.95`", "Confidence of the interval.", "`0.99`"]
    assert row("delays", "exponential", "mean")[1:3] == ["a number above 0, in s (ms, us, ns, min, h)", "required"]
    assert row("timing", "capacitymahimahi", "window")[2] == "`0.1` s"
    assert "[a capacity that changes](timing.md#capacities)" in row("timing", "link", "up")[1]
    assert row("timing", "link", "up")[2] == "`unlimited`"
    assert row("timing", "timing", "network")[2] == "`{kind: fair}`"


def test_every_key_of_the_reference_has_a_meaning_and_an_example(pages: dict[str, str]) -> None:
    rows = [line for page in pages.values() for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    for line in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        assert len(cells) == 5
        assert all(cells), line


def test_every_command_and_option_is_in_the_reference() -> None:
    from command_reference import commands

    page = commands()

    def check(command: Any, name: str) -> None:
        for each, inner in getattr(command, "commands", {}).items():
            check(inner, f"{name} {each}")
        if not hasattr(command, "commands"):
            section = page.partition(f"## `{name}`\n")[2].partition("\n## ")[0]
            assert command.help.splitlines()[0] in section
            for option in command.params:
                assert any(f"`{spelt}" in section for spelt in [*option.opts, str(option.metavar), option.name.upper()])

    check(get_command(app), "vflsim")


def test_every_column_and_key_of_a_run_has_a_meaning() -> None:
    from columns_reference import columns

    page = columns()
    rows = [line.strip("| ").split(" | ", 1) for line in page.splitlines() if line.startswith("| `")]
    assert all(len(row) == 2 for row in rows), rows
    for table, names in {
        "metrics": [*metrics_schema(["energy_j", "epsilon"]).names],
        "rounds": [*rounds_schema(["energy_j"]).names],
        "events": EVENTS.names,
        "energy_by_party": ENERGY_SCHEMA.names,
        "closed_forms": CURVES.names,
        "run.json": RunInfo.model_fields,
    }.items():
        section = page.partition(f"## {table}\n")[2].partition("\n## ")[0]
        named = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
        assert [name for name in named if "<" not in name] == [*names]


def test_every_option_of_an_attack_has_a_meaning() -> None:
    from attack_reference import attacks

    page = attacks()
    for kind, attack in ATTACKS.items():
        section = page.partition(f"## {kind}\n")[2].partition("\n## ")[0]
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
        assert [row[0].strip("`") for row in rows] == [name for name in attack.model_fields if name != "kind"]
        assert all(row[3].strip() for row in rows)


def test_a_notebook_becomes_a_page_with_its_outputs(tmp_path: Path) -> None:
    from notebook_pages import notebook

    page = notebook(ROOT / "docs" / "notebooks" / "timing_study.ipynb")
    assert page.startswith("# A timing study\n")
    assert page.count("```python\n") == 5
    assert page.count("<img ") == 2
    assert "<pre><code>" not in page
