"""Read the scenario of a results folder, and the ``run.json`` of its runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vflsim.errors import ResultsError, ScenarioError, printable
from vflsim.files import json_of, text
from vflsim.results.store.schema import RunInfo
from vflsim.results.store.write import RUN
from vflsim.version import __version__
from vflsim.vocabulary.plain_yaml import MAX_VALUES, parse_value

_MAPPINGS = ("stop", "constants", "partition", "training", "timing")
MOST_VALUES = 10 * MAX_VALUES
"""A stored scenario lists its seeds and clients one by one."""


def read_scenario(path: Path) -> Mapping[str, Any]:
    """Read the scenario stored with results. Raises ResultsError if it is damaged."""
    try:
        scenario, _ = parse_value(text(path), path.name, MOST_VALUES)
    except ScenarioError as error:
        raise damaged(path, f"{error.where}: {error.what}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from error
    if not isinstance(scenario, dict) or not isinstance(scenario.get("protocols"), dict):
        raise damaged(path, "no protocols in it")
    sections = {key: scenario.get(key) for key in _MAPPINGS} | scenario["protocols"]
    for name in (str(scenario.get("name", "")), *scenario["protocols"]):
        _must_be_printable(path, name)
    if wrong := [key for key, value in sections.items() if not isinstance(value, dict | None)]:
        raise damaged(path, f"{wrong[0]} is no mapping")
    return scenario


def read_info(folder: Path) -> RunInfo:
    """Read the ``run.json`` of a folder. Raises ResultsError if it is damaged or belongs to another run."""
    path = folder / RUN
    page: Any = None
    try:
        info = RunInfo.model_validate(page := json_of(path))
    except ValidationError as error:
        raise _unfit(path, page, error) from error
    except (OSError, ValueError) as error:
        raise damaged(path, str(error)) from error
    for name in (info.scenario, info.protocol):
        _must_be_printable(path, name)
    if (info.protocol, f"seed-{info.seed}") != (folder.parent.name, folder.name):
        raise damaged(path, f"it belongs to {info.protocol}/seed-{info.seed}")
    return info


def _must_be_printable(path: Path, name: str) -> None:
    """Refuse names that vflsim writes nowhere: they would reach figures and pages, too."""
    if printable(name, "") != name:
        raise damaged(path, f"the name {name!r} has control characters")


def _unfit(path: Path, page: Any, error: ValidationError) -> ResultsError:
    """Make the error about a page with other keys or values: of another version of vflsim, or damaged."""
    first = error.errors()[0]
    problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    versions = page.get("versions") if isinstance(page, dict) else None
    writer = versions.get("vflsim") if isinstance(versions, dict) else None
    if not isinstance(writer, str) or writer == __version__:
        return damaged(path, problem)
    return ResultsError(
        f"cannot be read by vflsim {__version__}: {problem}",
        str(path),
        "pages with the keys of this version",
        f"vflsim {writer} has written this run: read it with that version, or run the scenario with another --out",
    )


def damaged(path: Path, problem: str) -> ResultsError:
    """Make the error about a damaged file, with its remedy."""
    return ResultsError(
        f"damaged: {problem.splitlines()[0] if problem else 'unreadable'}",
        str(path),
        remedy="delete this run's folder and run the scenario again",
    )
