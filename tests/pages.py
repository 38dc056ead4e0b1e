"""The code of the documents."""

import re
import runpy
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]


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
