"""The code of the documents."""

import re
import runpy
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
NEARLY = 0.3
"""The relative difference that numbers may have after training on another processor: their last digits differ."""
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_PAGE = re.compile(r"[\w/-]+\.md")


def pages_of(tab: str) -> list[str]:
    """Return the names of a tab's pages, relative to the folder of pages, but for those that are generated."""
    (entries,) = (entry[tab] for entry in YAML(typ="safe").load(ROOT / "mkdocs.yml")["nav"] if tab in entry)
    return [page for page in _PAGE.findall(str(entries)) if (ROOT / "docs" / page).is_file()]


class _Generated(Mapping[Path, set[str]]):
    """The pages of the reference, written when a test asks for one: collecting tests does not."""

    @cached_property
    def _pages(self) -> dict[Path, set[str]]:
        docs = ROOT / "docs"
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(docs / "_site"))
            names = ("python_reference", "scenario_reference", "columns_reference", "attack_reference")
            python, scenario, columns, attacks = map(import_module, names)
        pages = {docs / f"reference/{name}.md": set[str]() for name in ("commands", "scenarios")}
        for name, text in (("columns", columns.columns()), ("attacks", attacks.attacks())):
            pages[docs / f"reference/{name}.md"] = set(re.findall(r"^## (\S+)$", text, re.MULTILINE))
        pages |= {docs / f"reference/python/{name}.md": set() for name in python.PAGES}
        return pages | {
            docs / f"reference/scenario/{name}.md": set(re.findall(r"\{#(\S+)\}$", text, re.MULTILINE))
            for name, text in scenario.scenario_pages().items()
        }

    def __getitem__(self, page: Path) -> set[str]:
        return self._pages[page]

    def __iter__(self) -> Iterator[Path]:
        return iter(self._pages)

    def __len__(self) -> int:
        return len(self._pages)


def generated() -> Mapping[Path, set[str]]:
    """The pages of the reference that the site's hooks write, with the anchors of those on the scenario file."""
    return _Generated()


def nearly(shown: str, printed: str) -> bool:
    """Whether a line has the words and signs that a page shows, and numbers that are nearly as large."""
    sides = [[float(number.replace(",", "")) for number in _NUMBER.findall(line)] for line in (shown, printed)]
    return in_words(shown) == in_words(printed) and sides[1] == pytest.approx(sides[0], rel=NEARLY)


def in_words(line: str) -> str:
    """A line without its numbers, and without what follows from the width of its cells."""
    return re.sub(r"[\s─]+", " ", _NUMBER.sub("#", line)).strip()


def code_of(page: Path) -> list[str]:
    """The Python code of a page, block by block."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def defined_on(page: Path, name: str, *changes: tuple[str, str]) -> type:
    """The class ``name`` as the page defines it, with pieces of its text replaced."""
    (text,) = (block for block in code_of(page) if f"class {name}(" in block)
    for old, new in changes:
        assert text.count(old) == 1, f"{page.name} no longer has {old!r}"
        text = text.replace(old, new)
    with TemporaryDirectory() as folder:
        script = Path(folder) / f"{page.stem.replace('-', '_')}.py"
        script.write_text(text)
        found: type = runpy.run_path(str(script))[name]
    return found


def column(text: str, after: str, number: int = 0) -> list[str]:
    """A column of the first table that follows ``after``, without its head."""
    rows = text.partition(after)[2].partition("\n|")[2].partition("\n\n")[0].splitlines()[2:]
    return [row.strip().strip("|").split("|")[number].strip() for row in rows]


def in_code(text: str) -> set[str]:
    """The words that stand in code."""
    return {name for code in re.findall(r"`([^`]+)`", text) for name in re.findall(r"\w+", code)}
