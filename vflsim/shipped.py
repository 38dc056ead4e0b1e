"""Where scenario files are: the user's own, and those that come with vflsim.

Without heavy imports, so that a mistyped name is answered at once.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from vflsim.errors import ScenarioError, nearest

_PACKAGE = Path(__file__).parent
FOLDERS = (_PACKAGE / "scenarios", _PACKAGE.parent / "scenarios")
"""Where vflsim's own scenarios may be: inside an installed package, beside it in a checkout."""
WORLDS = "worlds"
"""Folders of this name hold presets of timing beside the scenarios that take them."""
TEMPLATE = _PACKAGE / "template.yaml"
"""A scenario to start from."""

LONGEST_NAME = 64
"""Characters of a scenario's name, at most."""
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,63}")
_RESERVED = {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)}


def shipped() -> dict[str, Path]:
    """Return the files of vflsim's own scenarios by name: ``quickstart``, ``fedvs/fig4``."""
    folder = next((each for each in FOLDERS if each.is_dir()), None)
    scenarios = [] if folder is None else [file for file in folder.rglob("*.yaml") if file.parent.name != WORLDS]
    files = sorted(scenarios, key=lambda file: (file.parent, file.name))
    return {file.relative_to(str(folder)).with_suffix("").as_posix(): file for file in files}


def scenario_file(source: str | Path) -> Path:
    """Return ``source`` if such a file exists, else vflsim's own scenario of this name.

    Raises ScenarioError, with similar names, if there is neither.
    """
    path, name = Path(source), str(source)
    try:
        folder = stat.S_ISDIR(os.stat(path).st_mode)
        if not folder:
            return path
    except (FileNotFoundError, NotADirectoryError):
        folder = False
    except (OSError, ValueError):
        return path  # who opens it says why this is no path
    known = shipped()
    if name in known:
        return known[name]
    inside = [each.name for each in _scenarios_in(path if folder else path.parent)]
    if folder:
        what = "this is a folder, not a scenario file"
        raise ScenarioError(what, name, "a YAML file, or a name that `vflsim scenarios` lists", _one_of(name, inside))
    remedies = [_similar(path, known), _one_of(str(path.parent), inside)]
    remedy = "; ".join(filter(None, remedies)) or "check the path"
    raise ScenarioError("there is no such file", name, "a file, or a name that `vflsim scenarios` lists", remedy)


def title(file: Path) -> str:
    """Return the first line of a scenario file's comment."""
    with open(file, encoding="utf-8") as lines:
        return next(lines, "").removeprefix("#").strip()


def started(name: str, source: Path = TEMPLATE) -> str:
    """Return the text of ``source`` as a scenario of this name."""
    text = source.read_text(encoding="utf-8")
    if source == TEMPLATE:
        return text.replace("NAME", name)
    return re.sub(r"^name: .*$", f"name: {name}", text, count=1, flags=re.MULTILINE)


def result_name(file: Path) -> str:
    """Make a name of a scenario, which also names its folder of results, from that of a file."""
    return re.sub(r"[^A-Za-z0-9_+-]", "_", file.name.partition(".")[0]).strip("_+-")[:64] or "own"


def folder_name(name: str) -> str:
    """Return a scenario's name, which names its folder of results. Raises ValueError if it cannot."""
    if not _FOLDER.fullmatch(name) or name.lower() in _RESERVED:
        raise ValueError(
            f"{name!r} cannot name a folder of results; allowed: 1 to 64 of the letters a-z A-Z, digits, _ + -, "
            "beginning with a letter or digit; remedy: choose a simpler name"
        )
    return name


def completions(incomplete: str) -> list[str]:
    """Return the scenario files and folders, and vflsim's own scenarios, that begin like this."""
    parent = Path(incomplete).parent if not incomplete.endswith("/") else Path(incomplete)
    scenarios = [str(each) for each in _scenarios_in(parent)]
    folders = [f"{each}/" for each in sorted(parent.iterdir()) if each.is_dir()] if parent.is_dir() else []
    return [each for each in (*scenarios, *folders, *shipped()) if each.startswith(incomplete)]


def _scenarios_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.y*ml")) if folder.is_dir() else []


def _similar(path: Path, known: dict[str, Path]) -> str:
    """Return a remedy that names vflsim's own scenarios nearest to ``path``; empty without any."""
    wanted = path.with_suffix("")
    last = {name.rpartition("/")[2]: name for name in known}
    if wanted.name in last:
        return f"did you mean {last[wanted.name]!r}?"
    return nearest(wanted.as_posix(), known) or nearest(wanted.name, last)


def _one_of(folder: str, names: list[str]) -> str:
    shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
    return f"in {folder} there are: {shown}" if names else ""
