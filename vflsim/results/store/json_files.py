"""Read the scenario of a results folder, and the ``run.json`` of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vflsim.errors import ResultsError, ScenarioError, printable
from vflsim.files import json_of, text
from vflsim.results.store.schema import RunInfo
from vflsim.results.store.write import RUN
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
    try:
        info = RunInfo.model_validate(json_of(path))
    except (OSError, ValueError) as error:
        problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise damaged(path, problem) from error
    for name in (info.scenario, info.protocol):
        _must_be_printable(path, name)
    if (info.protocol, f"seed-{info.seed}") != (folder.parent.name, folder.name):
        raise damaged(path, f"it belongs to {info.protocol}/seed-{info.seed}")
    return info


def _must_be_printable(path: Path, name: str) -> None:
    """Refuse names that vflsim writes nowhere: they would reach figures and pages, too."""
    if printable(name, "") != name:
        raise damaged(path, f"the name {name!r} has control characters")


def damaged(path: Path, problem: str) -> ResultsError:
    """Make the error about a damaged file, with its remedy."""
    return ResultsError(
        f"damaged: {problem.splitlines()[0] if problem else 'unreadable'}",
        str(path),
        remedy="delete this run's folder and run the scenario again",
    )
