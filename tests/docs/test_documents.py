"""The documents tell the truth: their code runs, their links lead somewhere, their scenarios load."""

import re
import runpy
import shutil
from pathlib import Path

import pytest
from pages import ROOT, code_of

import vflsim

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text()]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_code_of_a_page_runs_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    monkeypatch.chdir(tmp_path)
    script = tmp_path / f"{page.stem.replace('-', '_')}.py"
    script.write_text("\n".join(code_of(page)))
    runpy.run_path(str(script))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_scenario_loads_and_says_what_it_shows(path: Path) -> None:
    assert path.read_text().startswith("# "), "a scenario begins with a comment that says what it shows"
    assert vflsim.load(path).protocols
