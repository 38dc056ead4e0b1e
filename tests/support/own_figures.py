"""Figures of the tests' own, as users write them: some work, and some break their contract, each in one way."""

from typing import Any, Literal

from vflsim.plotting import Picture, Results, picture
from vflsim.protocol import Count, Figure


class Clients(Figure):
    """How many clients each server step used, every so many rounds."""

    kind: Literal["clients"] = "clients"
    every: Count = 1

    def draw(self, results: Results) -> Picture:
        rounds = results.rounds.assign(clients=lambda frame: frame["used"].map(len)).iloc[:: self.every]
        with picture(5, 3, {"rounds": rounds[["protocol", "round", "clients"]]}) as figure:
            axes = figure.subplots()
            for name, own in rounds.groupby("protocol", observed=True):
                axes.plot(own["round"], own["clients"], label=name)
        return figure


class Nothing(Clients):
    def draw(self, results: Results) -> Any:
        return None


class Raises(Clients):
    def draw(self, results: Results) -> Any:
        raise LookupError("no such frame")


class NoDraw(Figure):
    kind: Literal["no_draw"] = "no_draw"
