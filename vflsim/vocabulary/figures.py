"""Figures: their options, written once for the command line, the scripts in plots/ and checks; their base class.

To add an option: an entry here, and a parameter of its name in ``vflsim.plotting.plot`` (of every figure) or in the
functions that draw the figures which have it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, final

from vflsim.vocabulary.base import Part


@final
@dataclass(frozen=True, slots=True)
class FigureOption:
    """An option of figures: its ``name`` on the command line, the ``parameter`` of functions, and its ``help``.

    One that may be ``repeated`` is a list.
    """

    name: str
    parameter: str
    help: str
    metavar: str | None = None
    repeated: bool = False

    @property
    def flag(self) -> str:
        """Write the option as on the command line."""
        return f"--{self.name}"


_EVERY = (
    FigureOption("protocol", "protocols", "Only this protocol (may be repeated).", repeated=True),
    FigureOption(
        "metric",
        "metric",
        "Column of the metrics, e.g. test_loss (default: the target's metric); of a sweep also a measure (bytes), a "
        "cost (bytes_to_target) or a percentile of the rounds (p99).",
    ),
    FigureOption("target", "target", "Target instead of the scenario's: test_accuracy=0.85."),
    FigureOption(
        "at", "at", "Only the points of a sweep with this value of a key (may be repeated).", "KEY=VALUE", repeated=True
    ),
    FigureOption(
        "form", "form", "Of a sweep: lines (one key), map (two keys), panels (two or more; one key less as lines)."
    ),
    FigureOption("from", "start", "Where the horizontal axis begins: 10 s, 20 (rounds), 5 MB."),
    FigureOption("to", "end", "Where the horizontal axis ends."),
    FigureOption(
        "size",
        "size",
        "Width x height: 7x4 (inches), 85x60 mm or 18x10 cm; single or double for columns of a paper.",
        "WxH",
    ),
    FigureOption("title", "title", "Title instead of the scenario's name; '' for none."),
    FigureOption(
        "style",
        "style",
        "default, paper, slides, grey, a style file of a paper (.yaml, see --new-style), or one of Matplotlib "
        "(.mplstyle).",
    ),
)
FIGURE_OPTIONS: Final = {option.name: option for option in _EVERY}
"""The options by their name on the command line."""


class Figure(Part, ABC):
    """A figure of results.

    Example of a class of your own, which ``vflsim plot RESULTS --kind mine:Clients`` draws, and in Python
    ``vflsim.plot(results, "mine:Clients")``::

        class Clients(Figure):
            kind: Literal["clients"] = "clients"

            def draw(self, results: Results) -> Picture:
                rounds = results.rounds.assign(clients=lambda frame: frame["used"].map(len))
                with picture(5, 3, {"rounds": rounds[["protocol", "round", "clients"]]}) as figure:
                    axes = figure.subplots()
                    for name, own in rounds.groupby("protocol"):
                        axes.plot(own["round"], own["clients"], label=name)
                    axes.set(xlabel="round", ylabel="clients used")
                return figure

    ``Picture``, ``picture`` and ``Results`` are those of ``vflsim.plotting``.
    """

    kind: str
    """The name of this kind, which its file has."""

    @abstractmethod
    def draw(self, results: Any) -> Any:
        """Return a ``Picture`` of ``Results`` (of a sweep: of the ``Sweep``). Changes none of their frames."""
