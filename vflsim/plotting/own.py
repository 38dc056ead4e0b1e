"""Figures from outside, by import path: ``mine:Clients``."""

import sys
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from vflsim.errors import ResultsError, VflsimError
from vflsim.plotting.style import Picture
from vflsim.results.read import Results
from vflsim.results.store.manifest import refuse_untrusted
from vflsim.results.sweeps.sweep import Sweep
from vflsim.scenario.own_modules import origins
from vflsim.vocabulary.figure import Figure
from vflsim.vocabulary.imported import class_of, origin, reason

_WHERE = "plot"


def is_path(kind: str) -> bool:
    """Return whether a figure is named by its path, ``package.module:Class``."""
    return ":" in kind


def own_figure(path: str, results: Results | Sweep) -> Callable[..., Picture]:
    """Return the function that draws the figure of a class from outside; its options are the class's fields.

    Python looks for the module in the current folder, too, and then in the folder of modules of the results' scenario,
    if the results are trusted. Importing it runs its code. Raises ResultsError for what is no such class.
    """
    _look_in(str(Path.cwd()))
    _look_in_folder_of(results, path)
    try:
        figure = cast("type[Figure]", class_of(path, Figure))
    except ValueError as error:
        what, _, mend = str(error).partition("; ")
        there = "name a module in the current folder, on PYTHONPATH, or in the scenario's folder of modules"
        allowed = "package.module:Class, a Figure with a kind and draw(results)"
        raise ResultsError(what, _WHERE, allowed, there if not mend or "does not import" in what else mend) from error

    def draw(results: Results | Sweep, **options: Any) -> Picture:
        return _drawn(figure, results, options)

    names = [Parameter("results", Parameter.POSITIONAL_ONLY)]
    names += [Parameter(name, Parameter.KEYWORD_ONLY) for name in figure.model_fields if name != "kind"]
    draw.__signature__ = Signature(names)  # type: ignore[attr-defined]
    draw.__name__ = figure.model_fields["kind"].default
    return draw


def _drawn(figure: type[Figure], results: Results | Sweep, options: dict[str, Any]) -> Picture:
    name = figure.__name__
    try:
        instance = figure.model_validate(options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "its options"
        raise ResultsError(f"{name}.{key}: {first['msg']}", _WHERE, ", ".join(_options_of(figure))) from error
    try:
        drawn = instance.draw(results)
    except VflsimError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise ResultsError(
            f"the figure {name} fails: {reason(error)}", _WHERE, remedy=f"mend it; raised in {origin(error)}"
        ) from error
    if not isinstance(drawn, Picture):
        what = f"{name}.draw returned a {type(drawn).__name__}"
        raise ResultsError(what, _WHERE, "a Picture, which `with picture(width, height, numbers)` makes", "mend 'draw'")
    return drawn


def _options_of(figure: type[Figure]) -> list[str]:
    return [name for name in figure.model_fields if name != "kind"]


def _look_in(folder: str) -> None:
    if folder not in sys.path:
        sys.path.append(folder)


def _look_in_folder_of(results: Results | Sweep, path: str) -> None:
    """Let Python find a figure's module in the folder of modules of the results, if it is there and nowhere else.

    Raises ResultsError for a module there if the results are not trusted.
    """
    study = results.results[0] if isinstance(results, Sweep) else results
    entries = {"modules": study.scenario.get("modules"), "figure": {"kind": "module", "path": path}}
    there = origins(entries)
    if not isinstance(entries["modules"], str) or there == origins(entries | {"modules": None}):
        return
    runs = [run for run in study.runs if run.folder.parents[1] == study.runs[0].folder.parents[1]]
    refuse_untrusted(runs[0].folder.parents[1], runs, there)
    _look_in(entries["modules"])
