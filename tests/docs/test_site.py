"""The documentation site builds without a warning and needs no other host; notebooks run."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LOADS = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
"""Elements that make a browser load something, and the attribute that says what."""


class Loaded(HTMLParser):
    """The addresses that a page makes a browser load."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag in LOADS and not (tag == "link" and said.get("rel") in ("canonical", "next", "prev")):
            self.found.append(said.get(LOADS[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a warning is an error."""
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


@pytest.mark.slow
def test_no_page_of_the_site_loads_anything_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    elsewhere = {address for page in pages for address in Loaded(page).found if re.match(r"(https?:)?//", address)}
    assert not elsewhere
    styles = {address for style in site.rglob("*.css") for address in re.findall(r"url\(([^)]+)\)", style.read_text())}
    assert not {address for address in styles if re.match(r"""["']?(https?:)?//""", address)}


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_has_kept_its_outputs_and_no_error(file: Path) -> None:
    code = [cell for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell["outputs"])
    assert not [output for cell in code for output in cell["outputs"] if output["output_type"] == "error"]


def shown(notebook: Any) -> list[list[list[str]]]:
    """The types of what each cell shows, such as a table or a figure."""
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    return [[sorted(output.data) for output in cell if "data" in output] for cell in outputs]


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="the extra `docs` is not installed")
    nbformat = pytest.importorskip("nbformat", reason="the extra `docs` is not installed")
    pytest.importorskip("ipykernel", reason="the extra `docs` is not installed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(file, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert shown(notebook) == shown(nbformat.read(file, as_version=4))
