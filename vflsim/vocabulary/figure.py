"""The base class of figures from outside. The fields of a class are its options, and its method draws results."""

from abc import ABC, abstractmethod
from typing import Any

from vflsim.vocabulary.base import Part


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
