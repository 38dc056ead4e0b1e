"""The documents tell the truth: their code runs, their links lead somewhere, their scenarios load."""

import re
import runpy
import shutil
from pathlib import Path

import pytest
from pages import ROOT, code_of, generated

import vflsim
from vflsim.shipped import shipped
from vflsim.world.node import Node
from vflsim.world.record import OUTCOMES
from vflsim.world.run_tables import EVENTS

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
WALKED = {"tutorial", "adding-a-protocol.md", "live.md", "own-data.md"}
"""What ``test_tutorial.py`` runs, commands and code in their order."""
WITH_CODE = [page for page in PAGES if not WALKED & {page.parent.name, page.name} and "```python" in page.read_text()]


RUN_STUDIES = (
    "inference.md",
    "results.md",
    "straggler-protocols.md",
    "sweeps.md",
)
"""Pages whose code takes seconds."""


GENERATED = generated()


def case(page: Path) -> object:
    return pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in RUN_STUDIES else [])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("page", [*map(case, WITH_CODE)])
def test_the_code_of_a_page_runs_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    monkeypatch.chdir(tmp_path)
    script = tmp_path / f"{page.stem.replace('-', '_')}.py"
    script.write_text("\n".join(code_of(page)))
    runpy.run_path(str(script))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        at = (page.parent / target).resolve()
        assert at.exists() or at in GENERATED, f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_section_leads_to_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text().replace("\n", " ")):
        at = (page.parent / target).resolve() if target else page
        there = GENERATED[at] if at in GENERATED else anchors(at)
        assert anchor in there, f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("path", sorted(shipped().values()), ids=lambda path: path.stem)
def test_every_scenario_loads_and_says_what_it_shows(path: Path) -> None:
    assert path.read_text().startswith("# "), "a scenario begins with a comment that says what it shows"
    assert vflsim.load(path).protocols


VERBS = {name for name in dir(Node) if not name.startswith("_")}
"""All that a protocol may call on its node."""


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_reference_explains_every_verb_of_a_node(verb: str) -> None:
    assert getattr(Node, verb).__doc__


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_reference_explains_every_outcome_of_an_event(outcome: str) -> None:
    (column,) = (each for each in EVENTS if each.name == "outcome")
    assert f"``{outcome}``" in column.meaning
