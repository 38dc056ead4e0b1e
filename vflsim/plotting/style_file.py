"""Style files: how protocols look, and are called, in all figures of a paper."""

from pathlib import Path
from typing import Annotated, Any

import matplotlib as mpl
from matplotlib.lines import Line2D
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from vflsim.errors import ResultsError, ScenarioError
from vflsim.files import text
from vflsim.vocabulary.plain_yaml import parse_value

SUFFIXES = (".yaml", ".yml")
COLUMNS = {"single": 3.5, "double": 7.16}
"""Widths of a figure in one column of a paper, or across both, in inches (those of the IEEE)."""
LINES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (4, 1.5)),
    "dotted": (0, (1, 1)),
    "dashdot": (0, (5, 1.5, 1, 1.5)),
}
"""The lines of protocols by name."""


def _colour(value: str) -> str:
    if not mpl.colors.is_color_like(value):
        raise ValueError(f'{value!r} is no colour; allowed: "#0072B2", or a name such as navy')
    return str(mpl.colors.to_hex(value))


def _marker(value: str) -> str:
    if value not in Line2D.filled_markers:
        raise ValueError(f"{value!r} is no marker; allowed: {' '.join(map(str, Line2D.filled_markers))}")
    return value


def _line(value: str) -> str:
    if value not in LINES:
        raise ValueError(f"{value!r} is no line; allowed: {', '.join(LINES)}")
    return value


class ProtocolLook(BaseModel, frozen=True, extra="forbid"):
    """How one protocol looks; what is left out is as without the file."""

    label: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    color: Annotated[str, AfterValidator(_colour)] | None = None
    marker: Annotated[str, AfterValidator(_marker)] | None = None
    line: Annotated[str, AfterValidator(_line)] | None = None


def _different(protocols: dict[str, ProtocolLook]) -> dict[str, ProtocolLook]:
    labels = [look.label or name for name, look in protocols.items()]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise ValueError(f"two protocols have the label {twice!r}; allowed: a label of its own for each")
    return protocols


class StyleFile(BaseModel, frozen=True, extra="forbid"):
    """A style of ``STYLES`` or a Matplotlib style file, a size, and the protocols in their order."""

    style: str = "paper"
    size: str | None = None
    protocols: Annotated[dict[str, ProtocolLook], AfterValidator(_different)] = {}


def read_style(path: Path) -> StyleFile:
    """Read a style file. Raises ResultsError, with the line, for anything that it may not say."""
    try:
        value, lines = parse_value(text(path), str(path))
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"write one: vflsim plot RESULTS --new-style {path}"
        raise ResultsError(str(error), str(path), "a style file", remedy) from error
    except ScenarioError as error:
        raise ResultsError(error.what, error.where, error.allowed) from error
    try:
        file = StyleFile.model_validate({} if value is None else value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = tuple(part for part in first["loc"] if isinstance(part, str | int))
        line = next((lines[place[:end]] for end in range(len(place), -1, -1) if place[:end] in lines), 1)
        what, _, allowed = first["msg"].removeprefix("Value error, ").partition("; allowed: ")
        keys = StyleFile.model_fields if len(place) < 3 else ProtocolLook.model_fields
        where, what = f"{path}:{line}", f"{'.'.join(map(str, place))}: {what}"
        raise ResultsError(what, where, allowed or ", ".join(keys)) from error
    beside = path.parent / file.style
    return file.model_copy(update={"style": str(beside)}) if beside.suffix == ".mplstyle" else file
