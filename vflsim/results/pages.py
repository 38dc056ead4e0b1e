"""The two pages of a results folder that are read first: the scenario, and the facts about every run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from vflsim.errors import ResultsError
from vflsim.files import text
from vflsim.results.schema import RunInfo
from vflsim.results.write import RUN


def read_scenario(path: Path) -> Mapping[str, Any]:
    """A scenario as it was kept with its results. Raises ResultsError where it is damaged."""
    try:
        scenario = YAML(typ="safe", pure=True).load(text(path))
    except (YAMLError, OSError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from error
    if not isinstance(scenario, dict) or not isinstance(scenario.get("protocols"), dict):
        raise damaged(path, "no protocols in it")
    return scenario


def read_info(folder: Path) -> RunInfo:
    """The facts about the run in a folder. Raises ResultsError where they are damaged, or another run's."""
    path = folder / RUN
    try:
        info = RunInfo.model_validate(json.loads(text(path)))
    except (OSError, ValueError) as error:
        problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise damaged(path, problem) from error
    if (info.protocol, f"seed-{info.seed}") != (folder.parent.name, folder.name):
        raise damaged(path, f"is the page of {info.protocol}/seed-{info.seed}")
    return info


def damaged(path: Path, problem: str) -> ResultsError:
    """The error that says what is damaged, and how to mend it."""
    return ResultsError(
        f"damaged: {problem.splitlines()[0] if problem else 'unreadable'}",
        str(path),
        remedy="delete this run's folder and run the scenario again",
    )
