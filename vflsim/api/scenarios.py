"""What a scenario would run, before it does: sizes, durations, bytes; and the closed forms of its timing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from vflsim.api import Framed
from vflsim.errors import ScenarioError
from vflsim.party_names import with_names

if TYPE_CHECKING:
    import pandas as pd

    from vflsim.analysis.findings import Choices, ClosedForm, Formula
    from vflsim.plotting.style import Picture
    from vflsim.scenario.models import Scenario
    from vflsim.scenario.resolve import ScenarioData
    from vflsim.studies.checks.estimates import Expectation
    from vflsim.studies.checks.rounds import Analysis
    from vflsim.studies.checks.run_speed import Speed
    from vflsim.tables import DataTable


def check(
    scenario: Scenario | str | Path | Mapping[str, Any],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    protocols: Sequence[str] = (),
    quick: bool = False,
    workers: int = 1,
    threads: int = 1,
) -> Check:
    """Check a scenario and its data; estimate its runs: virtual and real time, bytes, memory.

    As ``vflsim check``: some steps of each protocol are simulated without training, and some are trained, unless
    ``quick``, to predict real time on this machine with ``workers`` runs at a time of ``threads`` each. ``protocols``
    names those to check (default: all). Raises ``ScenarioError`` and ``DataError``, as a run would.

    Example: ``vflsim.check("quickstart", quick=True).frame[["protocol", "step_s"]]``
    """
    from vflsim.scenario.load import as_scenario, narrowed
    from vflsim.simulation.collector import patient_collector
    from vflsim.studies.checks.data import read_and_check
    from vflsim.studies.checks.estimates import expectation
    from vflsim.studies.checks.run_speed import speeds
    from vflsim.studies.checks.tryout import refuse_broken
    from vflsim.vocabulary.execution_options import DeviceWish, RunOptions

    loaded = narrowed(as_scenario(scenario, overrides), protocols)
    device: DeviceWish = "cpu" if quick else "auto"  # what runs nothing asks PyTorch for no device
    options = RunOptions.of(workers=workers, threads=threads, device=device)
    with patient_collector():  # of a million clients all objects stay
        data = read_and_check(loaded, options.workers)
        if not quick:
            refuse_broken(loaded, data)
        start_s = time.process_time()  # a worker, too, imports all this and reads the data
        expectations = [expectation(loaded, name, data.of(loaded.training_of(name))) for name in loaded.protocols]
    measured = None if quick else speeds(loaded, data, expectations, options.execution)
    return Check(loaded, data, expectations, measured, workers, start_s)


@dataclass(frozen=True)
class Check(Framed):
    """What a scenario would run, by protocol. ``speeds`` were measured on this machine; None after a quick check.

    Example::

        expected = vflsim.check("quickstart", quick=True)
        expected.runs
        expected.frame[["protocol", "rounds", "round_bytes"]]
    """

    scenario: Scenario
    data: ScenarioData
    expectations: Sequence[Expectation]
    speeds: Mapping[str, Speed] | None
    workers: int = 1
    start_s: float = 0.0
    """Seconds of processor time that each of several workers takes to start."""

    @property
    def runs(self) -> int:
        """The number of runs: protocols × seeds."""
        return len(self.scenario.protocols) * len(self.scenario.seeds)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row per protocol: protocol, kind, clients, step_s, rounds, round_bytes, parameters, memory_bytes, run_s.

        ``step_s`` is the mean virtual time of a server step, ``rounds`` the rounds until the first stop rule (infinite
        if only a target ends a run), ``run_s`` the real time of a run with a core to itself (NaN after a quick check).
        """
        import pandas as pd

        speeds = self.speeds
        return pd.DataFrame(
            {
                "protocol": each.protocol,
                "kind": each.kind,
                "clients": each.clients,
                "step_s": each.step_s,
                "rounds": each.rounds,
                "round_bytes": each.round_bytes,
                "parameters": each.size.parameters,
                "memory_bytes": each.size.bytes,
                "run_s": float("nan") if speeds is None else speeds[each.protocol].run_s(each),
            }
            for each in self.expectations
        )

    @property
    @with_names(lambda check: check.scenario.document.raw)
    def table(self) -> DataTable:
        """The table of ``vflsim check``, with its notes."""
        from vflsim.studies.checks.describe import expectation_table

        return expectation_table(self.scenario, self.expectations, self.speeds, self.workers, self.start_s)


# --- closed forms -----------------------------------------------------------------------------------------------------


def analyze(
    scenario: Scenario | str | Path | Mapping[str, Any],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    protocols: Sequence[str] = (),
) -> Analyses:
    """Derive the closed forms of a scenario's timing, of all its ``protocols`` or of those that are named.

    As ``vflsim analyze``. Where a quantity has no closed form, the reason stands in its place; for a round also an
    interval of simulated ones. Raises ``ScenarioError`` and ``DataError``.

    Example: ``vflsim.analyze("quickstart")["wait"].round.mean``
    """
    from vflsim.scenario.load import as_scenario, narrowed
    from vflsim.studies.checks.data import read_and_check
    from vflsim.studies.checks.rounds import analyse_or_simulate

    loaded = narrowed(as_scenario(scenario, overrides), protocols)
    data = read_and_check(loaded, training=False)
    analyses = {name: analyse_or_simulate(loaded, name, data.of(loaded.training_of(name))) for name in loaded.protocols}
    return Analyses(loaded, data, analyses)


@final
class Analyses(Framed, Mapping[str, "Analysis"]):
    """The closed forms of a scenario by protocol; each has ``findings`` with laws, means and formulas.

    A finding is a :class:`~vflsim.analysis.findings.ClosedForm` (``mean``, ``sd``, ``quantile(level)``, ``law`` with
    ``cdf(x)``, ``formulas()`` in sympy), or a :class:`~vflsim.analysis.findings.NoClosedForm` or
    :class:`~vflsim.analysis.findings.Simulated` with the ``reason``.

    Example::

        analyses = vflsim.analyze("quickstart")
        analyses["wait"].round.quantile(0.9)
        analyses.frame[["protocol", "quantity", "mean"]]
        analyses.figure().savefig("laws.png")
    """

    def __init__(self, scenario: Scenario, data: ScenarioData, analyses: Mapping[str, Analysis]) -> None:
        self.scenario = scenario
        self._data, self._analyses = data, dict(analyses)

    def __getitem__(self, protocol: str) -> Analysis:
        return self._analyses[protocol]

    def __iter__(self) -> Iterator[str]:
        return iter(self._analyses)

    def __len__(self) -> int:
        return len(self._analyses)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row per protocol and quantity: numbers in SI units, ``known``, ``conditions``, and ``reason`` if none.

        Where only bounds are known, a column such as ``mean`` is the lower one, and ``mean_upper`` the upper one.
        """
        import pandas as pd

        return pd.DataFrame([_row(name, finding) for name, analysis in self.items() for finding in analysis.findings])

    def figure(self) -> Picture:
        """Draw the distributions of round durations: known ones as lines, bounds as areas.

        ``numbers``: ``closed_form`` (protocol, seconds, lower, upper). Raises ``ScenarioError`` if no protocol's round
        has a distribution.
        """
        from vflsim.analysis.findings import ClosedForm
        from vflsim.plotting.closed_forms import Curve, round_laws
        from vflsim.plotting.looks import kinds_in
        from vflsim.results.store.closed_forms import curves_of

        curves = {}
        for name, analysis in self.items():
            if isinstance(analysis.round, ClosedForm) and analysis.round.law is not None:
                ((*_, x, lower, upper),) = curves_of(name, [analysis.round])
                curves[name] = Curve(x, lower, upper)
        if not curves:
            raise ScenarioError("no protocol's round has a distribution in closed form", self.scenario.name)
        kinds = {name: kind for name, kind in kinds_in(self.scenario).items() if name in self}
        return round_laws(curves, kinds, self.scenario.name)

    @property
    def latex(self) -> str:
        """The formulas as one align environment per protocol, with a comment for every missing closed form."""
        from vflsim.analysis.findings import ClosedForm

        lines: list[str] = []
        for name, analysis in self.items():
            forms = [each for each in analysis.findings if isinstance(each, ClosedForm)]
            lines.append(f"% {name}")
            lines += [f"% {each}" for each in analysis.findings if not isinstance(each, ClosedForm)]
            expressions = [line for form in forms for line in formulas_of(form)]
            lines += [f"% {formula}" for formula in expressions if isinstance(formula, str)]
            formulas = dict.fromkeys(formula.latex for formula in expressions if not isinstance(formula, str))
            if formulas:
                lines += [r"\begin{align*}", " \\\\\n".join(f"  {formula}" for formula in formulas), r"\end{align*}"]
        return "\n".join(lines)

    def choices(self, protocol: str) -> tuple[Choices, ...]:
        """Return a protocol's tables of what else could be chosen, such as FedVS's best K; none where it has none.

        Raises ``Unanalysable`` if they have no closed form.
        """
        from vflsim.protocols.capabilities import outgrown
        from vflsim.scenario.resolve import setting

        kind = self.scenario.protocols[protocol].protocol
        if outgrown(kind, "closed_forms"):
            return ()
        data = self._data.of(self.scenario.training_of(protocol))
        return tuple(kind.choices(setting(self.scenario, protocol, data)))


def formulas_of(form: ClosedForm) -> Sequence[Formula | str]:
    """Return the formulas of a closed form, or a line with the error if they cannot be written."""
    from vflsim.analysis.findings import NoClosedForm

    try:
        formulas = form.formulas()
        for formula in formulas:
            _ = formula.text, formula.latex
    except Exception as error:
        return [f"{NoClosedForm.because_of(f'formula of {form.name}', error)}"]
    return formulas


def _row(protocol: str, finding: Any) -> dict[str, Any]:
    from vflsim.analysis.findings import QUANTILES, ClosedForm, Simulated

    row: dict[str, Any] = {"protocol": protocol, "quantity": finding.name}
    if isinstance(finding, Simulated):
        row |= {"unit": finding.unit, "clients": (), "known": "simulated"}
        row |= {"mean": finding.mean.low, "mean_upper": finding.mean.high}
    if not isinstance(finding, ClosedForm):
        return row | {"reason": finding.reason}
    row |= {"unit": finding.unit, "clients": finding.clients, "known": finding.exactness}
    row |= {"mean": finding.mean.low, "mean_upper": finding.mean.high, "mean_error": finding.error, "sd": finding.sd}
    for level in QUANTILES:
        if (at := finding.quantile(level)) is not None:
            row |= {f"p{100 * level:g}": at.low, f"p{100 * level:g}_upper": at.high}
    return row | {"conditions": finding.conditions}
