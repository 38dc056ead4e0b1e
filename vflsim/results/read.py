"""Read results: all runs of a scenario, their frames and weights, summaries and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from vflsim.errors import ResultsError
from vflsim.party_names import with_names
from vflsim.results.run_set import RunSet
from vflsim.results.store.run import NotRecordedError, StoredRun
from vflsim.vocabulary.on_demand import pd

if TYPE_CHECKING:
    from vflsim.tables import DataTable

__all__ = ["NotRecordedError", "Results", "StoredRun"]


class Results(RunSet):
    """All runs of one scenario: frames, weights, summaries and tables.

    Example: ``Results.open("results/quickstart").summary()``
    """

    def with_targets(self, targets: Mapping[str, Any] | None) -> Self:
        """Return the same results with other targets, such as ``{"test_accuracy": 0.9, "for": "20 s"}``.

        Raises ResultsError if they are invalid, or name a metric that was not evaluated.
        """
        from vflsim.results.statistics.costs import wanted_targets

        results = self._copy()
        results._chosen = self._chosen if targets is None else wanted_targets(self, targets)
        return results

    @with_names(lambda results, *_, **__: results.scenario)
    def summary(self, targets: Mapping[str, Any] | None = None, *, pairing: bool = False) -> DataTable:
        """Make the table that ``vflsim compare`` prints: see :func:`vflsim.results.comparison_table`."""
        from vflsim.results.tables import comparison_table

        return comparison_table(self, targets, pairing)

    def within(
        self,
        metric: str | None = None,
        *,
        time: float | str | None = None,
        rounds: int | None = None,
        bytes: float | str | None = None,
        energy: float | str | None = None,
    ) -> DataTable:
        """Rank the protocols by a metric (default: the main one) when they had spent one budget.

        See :func:`~vflsim.results.tables.ranking.budget_table`. Raises ResultsError for anything but one budget, and
        for a metric that was not evaluated.

        Example: ``results.within(time=600)``, ``results.within("test_loss", bytes="20 MB")``
        """
        from vflsim.results.tables.ranking import budget_table, budgets_from

        given = {"time": time, "rounds": rounds, "bytes": bytes, "energy": energy}
        budgets = budgets_from([{name: amount for name, amount in given.items() if amount is not None}], "within")
        if len(budgets) > 1:
            raise ResultsError(f"{len(budgets)} budgets at once", "within", "one of time, rounds, bytes and energy")
        return budget_table(self, budgets[0], metric)

    def estimates(self, targets: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Estimate means, costs to targets and paired differences: see :func:`vflsim.results.summarise`."""
        from vflsim.results.statistics import summarise

        return summarise(self, targets)

    def steady_rounds(self) -> pd.DataFrame:
        """Compute mean round durations after warm-up: see :mod:`vflsim.results.statistics.rounds`."""
        from vflsim.results.statistics.rounds import steady_rounds

        return steady_rounds(self)

    def round_pairs(self) -> pd.DataFrame:
        """Pair runs round by round: see :func:`vflsim.results.statistics.rounds.round_pairs`."""
        from vflsim.results.statistics.rounds import round_pairs

        return round_pairs(self)

    def round_quantiles(self, levels: Sequence[float] | None = None) -> pd.DataFrame:
        """Compute quantiles of round durations: see :func:`vflsim.results.statistics.quantiles.round_quantiles`."""
        from vflsim.results.statistics.quantiles import LEVELS, round_quantiles

        return round_quantiles(self, LEVELS if levels is None else levels)

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()
