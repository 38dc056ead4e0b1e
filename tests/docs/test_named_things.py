"""What the documents name exists: folders, layers, files, kinds, and the literal tables of extensions."""

import re
from importlib import import_module
from pathlib import Path
from runpy import run_path
from typing import Any, get_args

import pytest
from pages import ROOT, column, in_code
from ruamel.yaml import YAML
from tiny_worlds import raw

from vflsim.kinds import TABLES
from vflsim.scenario import load
from vflsim.studies.checks.describe import overrides

LAYERS: list[set[str]] = run_path(str(ROOT / "tests" / "test_imports.py"))["LAYERS"]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
KINDS = {name: {kind.model_fields["kind"].default for kind in kinds} for name, kinds in TABLES.items()}
ON_PAGES = {"module", "hedged", "triangular"}
"""Kinds that no table has: classes by path, and those that ``adding-a-protocol.md`` defines."""
TO_WRITE = {"vflsim/protocols/hedged.py"}
"""Files that a page asks its reader to write."""
SECTIONS = {
    "delays": ("timing.md", "## Delays"),
    "networks": ("timing.md", "## Links"),
    "transports": ("timing.md", "### TCP slow start"),
    "capacities": ("timing.md", "**Bandwidths that change.**"),
    "activations": ("timing.md", "## Activations"),
    "availabilities": ("timing.md", "## Outages"),
    "protocols": ("protocols.md", "## Every protocol"),
    "client-models": ("performance.md", "## What is batched"),
}
"""Where a page explains all kinds of something: up to the next section, or the end of the paragraph."""
TABLE_AND_FILE = re.compile(r"`(\w+)` in `(vflsim/[\w/]+)\.py`")


def kinds_in(table: Any) -> set[type]:
    """The classes of a literal union, of a tuple of classes, or of a union of one."""
    return set(table if isinstance(table, tuple) else get_args(table) or [table])


def test_the_architecture_page_describes_every_folder() -> None:
    described = set().union(*map(in_code, column(ARCHITECTURE, "## The folders")))
    assert described == set().union(*LAYERS) - {"__main__"}


def test_the_architecture_page_lists_the_layers_that_the_tests_enforce() -> None:
    listed = ARCHITECTURE.partition("## The folders")[2].partition("```text\n")[2].partition("```")[0]
    assert [set(line.split(", ")) for line in listed.splitlines()] == LAYERS


def test_the_glossary_is_in_alphabetical_order_and_explains_every_term() -> None:
    terms = column(GLOSSARY, "# Glossary")
    assert len(terms) > 50
    assert terms == sorted(set(terms), key=str.casefold)
    assert all(column(GLOSSARY, "# Glossary", 1))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    named = set(re.findall(r"`((?:vflsim|tests|benchmarks|plots|scenarios)/[\w/.-]+)`", page.read_text()))
    assert {path for path in named if not (ROOT / path).exists()} <= TO_WRITE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_kind_that_a_page_names_is_one(page: Path) -> None:
    named = set(re.findall(r"\{kind: (\w+)", page.read_text()))
    assert named <= set().union(*KINDS.values()) | ON_PAGES


@pytest.mark.parametrize("table", SECTIONS)
def test_a_section_on_kinds_names_all_of_them(table: str) -> None:
    page, heading = SECTIONS[table]
    section = (ROOT / "docs" / page).read_text().partition(heading)[2]
    section = section.partition("\n## " if heading.startswith("#") else "\n\n")[0]
    assert KINDS[table] <= in_code(section)


@pytest.mark.parametrize(("name", "module"), TABLE_AND_FILE.findall(CONTRIBUTING))
def test_a_literal_table_that_is_named_is_in_its_file(name: str, module: str) -> None:
    assert hasattr(import_module(module.removesuffix("/__init__").replace("/", ".")), name)


@pytest.mark.parametrize("table", TABLES)
def test_every_kind_of_extension_has_a_recipe(table: str) -> None:
    cells = " ".join(column(CONTRIBUTING, "## Extensions", 1))
    modules = [
        (name, import_module(module.removesuffix("/__init__").replace("/", ".")))
        for name, module in TABLE_AND_FILE.findall(cells)
    ]
    assert any(kinds_in(getattr(module, name)) == set(TABLES[table]) for name, module in modules)


def test_check_prints_the_line_that_the_page_on_overrides_shows() -> None:
    section = (ROOT / "docs" / "protocols.md").read_text().partition("## What a protocol may override")[2]
    entries = YAML(typ="safe").load(section.partition("```yaml\n")[2].partition("```")[0])
    shown = section.partition("```text\n")[2].partition("\n```")[0]
    assert list(overrides(load(raw(**entries)))) == [shown]
