"""Read results: all runs of a scenario, or of several studies as one, with their summaries and tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from vflsim.errors import ResultsError, VflsimError
from vflsim.party_names import with_names
from vflsim.results.run_set import RunSet
from vflsim.results.store.run import NotRecordedError, StoredRun
from vflsim.scenario.sections import Evaluate
from vflsim.streams import few
from vflsim.vocabulary.budgets import Budget
from vflsim.vocabulary.on_demand import pd
from vflsim.vocabulary.targets import Target

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


class JoinedResults(Results):
    """The runs of several studies as the results of one.

    A protocol keeps its name unless several studies have it; then the study's name follows: ``wait (mlp)``.
    ``declared`` targets and ``evaluated`` metrics are those that all studies have. Two protocols are paired, seed by
    seed, if they come from one study, or if their studies have the same timing, data, partition and batches;
    :meth:`unpaired` says why others are not. ``scenario`` holds the sections that are equal in all studies, and all
    protocols; ``folder`` is the folder that all studies are in.
    """

    def __init__(self, studies: Sequence[Results], labels: Mapping[str, str] | None = None) -> None:
        self.studies = tuple(studies)
        folder = Path(os.path.commonpath([study.folder.resolve() for study in self.studies]))
        titles = _titles(self.studies, folder)
        counts = Counter(name for study in self.studies for name in study.protocols)
        unique = [
            {name: name if counts[name] == 1 else f"{name} ({title})" for name in study.protocols}
            for study, title in zip(self.studies, titles, strict=True)
        ]
        self._labels = [{name: (labels or {}).get(each, each) for name, each in names.items()} for names in unique]
        self._study_of = {label: study for study, labels in self._each for label in labels.values()}
        runs = tuple(replace(run, label=labels[run.protocol]) for study, labels in self._each for run in study.runs)
        super().__init__(folder, self._common_scenario(titles), runs)
        self.baseline = self.first
        self._reasons: dict[tuple[str, str], str] = {}

    @classmethod
    def open(cls, folder: Path | str, trust: bool = False) -> Self:
        """Open the results of a single study. Raises ResultsError as :meth:`Results.open`."""
        return cls.of([Results.open(folder, trust)])

    @classmethod
    def of(cls, studies: Sequence[Results]) -> Self:
        """Join studies, or what was joined before. Raises ResultsError for no study, and for one named twice."""
        flat = [each for study in studies for each in (study.studies if isinstance(study, JoinedResults) else (study,))]
        if not flat:
            raise ResultsError("there is nothing to compare", "compare", "one or several results folders")
        places = Counter(study.folder.resolve() for study in flat)
        if twice := [str(place) for place, times in places.items() if times > 1]:
            raise ResultsError("is named twice", twice[0], "every results folder once")
        return cls(flat)

    @classmethod
    def renamed(cls, results: Results, labels: Mapping[str, str]) -> Self:
        """Return results whose protocols have other names; those without a label keep theirs."""
        studies = results.studies if isinstance(results, JoinedResults) else (results,)
        renamed = cls(studies, labels)
        renamed._chosen = results._chosen
        baseline = results.baseline
        renamed.baseline = None if baseline is None else labels.get(baseline, baseline)
        return renamed

    @cached_property
    def declared(self) -> tuple[Target, ...]:
        """The targets that every study names."""
        first, *others = (study.declared for study in self.studies)
        return tuple(target for target in first if all(target in other for other in others))

    @cached_property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets that every study names."""
        first, *others = (study.budgets for study in self.studies)
        return tuple(budget for budget in first if all(budget in other for other in others))

    @cached_property
    def evaluated(self) -> tuple[str, ...]:
        """The columns of metrics that every study evaluated."""
        return tuple(name for name in self.studies[0].evaluated if all(name in each.evaluated for each in self.studies))

    @cached_property
    def closed_forms(self) -> pd.DataFrame | None:
        """The closed forms of all studies; None if no study has any."""
        return self._united([study.closed_forms for study in self.studies])

    @cached_property
    def closed_forms_left_out(self) -> pd.DataFrame:
        """The missing closed forms of all studies."""
        united = self._united([study.closed_forms_left_out for study in self.studies])
        assert united is not None, "every study has this table"
        return united

    def _united(self, tables: Sequence[pd.DataFrame | None]) -> pd.DataFrame | None:
        """Stack the studies' tables, with unique names; without empty ones, whose columns have no types."""
        named = [
            table.assign(protocol=table["protocol"].map(labels))
            for table, labels in zip(tables, self._labels, strict=True)
            if table is not None
        ]
        return pd.concat([table for table in named if len(table)] or named[:1], ignore_index=True) if named else None

    def evaluation(self, run: StoredRun) -> Evaluate | None:
        """Return when a run's models were evaluated, by its own study."""
        return self._study_of[run.protocol].evaluation(run)

    def named(self, protocol: str) -> str:
        """Return the unique name of a protocol; a name that several studies have means the first study's."""
        names = (labels.get(protocol) for labels in self._labels)
        return super().named(next((name for name in names if name in self.protocols), None) or protocol)

    def unpaired(self, protocol: str, other: str) -> str:
        """Say why two protocols' runs with the same seed do not share their draws; empty if they do."""
        key = protocol, other
        if key not in self._reasons:
            self._reasons[key] = self._reason(protocol, other)
        return self._reasons[key]

    def estimates(self, targets: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Estimate as a single study does, with a column more: whether a difference is ``paired``."""
        frame = super().estimates(targets)
        pairs = zip(frame["protocol"], frame["baseline"], strict=True)
        paired = [None if pd.isna(other) else not self.unpaired(name, other) for name, other in pairs]
        return frame.assign(paired=pd.Series(paired, dtype="boolean"))

    def remarks(self) -> Iterator[str]:
        """Yield which protocols are paired with the baseline, why others are not, and which targets are left out."""
        first, reasons = self.first, dict[str, list[str]]()
        for name in self.protocols:
            if name != first:
                reasons.setdefault(self.unpaired(name, first), []).append(name)
        if names := reasons.pop("", []):
            yield f"Paired with {first} over common seeds (equal timing, data and batches): {', '.join(names)}."
        for reason, names in reasons.items():
            yield f"Compared with {first} as independent runs, not in pairs: {', '.join(names)}; {reason}."
        having = {target: study.name for study in self.studies for target in study.declared}
        if self._chosen is None and (rest := [f"{t} ({name})" for t, name in having.items() if t not in self.declared]):
            yield f"Targets that only some studies have are left out: {', '.join(rest)}."

    def _common_scenario(self, titles: Sequence[str]) -> dict[str, Any]:
        first, *others = (study.scenario for study in self.studies)
        common = {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}
        protocols = {
            labels[name]: entry
            for study, labels in self._each
            for name, entry in study.scenario["protocols"].items()
            if name in labels
        }
        return {**common, "name": few(titles), "protocols": protocols}

    @property
    def _each(self) -> Iterator[tuple[Results, dict[str, str]]]:
        """Every study with the unique names of its protocols, by their names in the study."""
        return zip(self.studies, self._labels, strict=True)

    def _reason(self, protocol: str, other: str) -> str:
        one, two = self._study_of[protocol], self._study_of[other]
        if one is two:
            return ""
        seeds = [{run.seed for run in self.runs if run.protocol == name} for name in (other, protocol)]
        if not seeds[0] & seeds[1]:
            return f"no common seed: {' against '.join(few([str(seed) for seed in sorted(group)]) for group in seeds)}"
        names = [next(run.info.protocol for run in self.runs if run.protocol == name) for name in (other, protocol)]
        return few(differences(two, names[0], one, names[1]), "; ")


def _titles(studies: Sequence[Results], folder: Path) -> list[str]:
    """Return a unique name of each study: the scenario's, or its folder's, or its place in the ``folder`` of all."""
    places = [study.folder.resolve() for study in studies]
    ways = [study.name for study in studies], [place.name for place in places]
    return next(
        (names for names in ways if len(set(names)) == len(names)), [os.path.relpath(each, folder) for each in places]
    )


PARTS = ("data", "partition", "timing")
"""The sections of a scenario that decide the draws of all its protocols."""
CAUSES = ("constants", "modules")
"""The sections that other sections refer to."""
BATCHES = ("batch", "batches", "sampling", "last_batch")
"""The keys of ``training`` that decide mini-batches; a protocol may override them."""


def differences(one: RunSet, name: str, other: RunSet, others_name: str) -> list[str]:
    """List how protocol ``name`` of a study and ``others_name`` of another differ in what decides draws, as written.

    Empty if nothing differs, or if everything has the same meaning: ``5 Mbps`` and ``5e6``, a default and its value.
    """
    written = _written(one, name), _written(other, others_name)
    if written[0] == written[1]:
        return []
    from vflsim.vocabulary.plain_yaml import changed  # imports all that a scenario may say

    lines = list(changed(*written))
    try:
        meant = [_meant(study, protocol) for study, protocol in ((one, name), (other, others_name))]
    except VflsimError:  # a file of the scenario is gone, or its modules are not trusted: only the text can be compared
        return lines
    same = [part for part, value in meant[0].items() if value == meant[1][part]]
    if len(same) == len(meant[0]):
        return []
    # names of parties decide draws where a selection uses them: then no other section is written differently
    return [line for line in lines if line.partition(":")[0].partition(".")[0] not in same] or lines


def _written(study: RunSet, name: str) -> dict[str, Any]:
    scenario = study.scenario
    training = (scenario.get("training") or {}) | ((scenario["protocols"].get(name) or {}).get("training") or {})
    batches = {key: training[key] for key in BATCHES if key in training}
    parts = {part: scenario[part] for part in PARTS if part in scenario}
    causes = {cause: scenario[cause] for cause in CAUSES if cause in scenario and (cause != "modules" or _named(parts))}
    return causes | parts | {"training": batches}


def _named(parts: dict[str, Any]) -> bool:
    from vflsim.scenario.own_modules import code_of

    return bool(code_of(parts))


def _meant(study: RunSet, name: str) -> dict[str, Any]:
    """Resolve what decides draws. Raises VflsimError if the scenario cannot be loaded any more."""
    from vflsim.results.store.manifest import stored_scenario
    from vflsim.scenario.resolve import party_timings

    scenario = stored_scenario(study.folder, study.runs)
    training = scenario.training_of(name)
    return {
        "data": scenario.data,
        "partition": scenario.partition.model_copy(update={"names": None, "clients": scenario.clients}),
        "timing": (scenario.timing.network, scenario.timing.transport, party_timings(scenario)),
        "training": [getattr(training, key) for key in BATCHES],
    }


def united(studies: Sequence[Results], baseline: str | None) -> Results | None:
    """Return the only results, or several joined, compared with a baseline; None without any.

    Raises ResultsError for an unknown baseline, for one without results, and for a study named twice.
    """
    if studies:
        return (studies[0] if len(studies) == 1 else JoinedResults.of(studies)).against(baseline)
    if baseline is not None:
        raise ResultsError("the tables of a sweep have no baseline", "--baseline", "with the results of a scenario")
    return None
