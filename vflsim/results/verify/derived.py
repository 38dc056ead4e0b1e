"""What a study's folder has beside its runs, computed again: the summary, and the curves of closed forms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from vflsim.analysis.findings import ClosedForm
from vflsim.analysis.rounds import ROUND
from vflsim.errors import ResultsError
from vflsim.files import opened
from vflsim.protocols.defaults import closed_forms_of
from vflsim.results.read import Results
from vflsim.results.statistics.summary import summarise, to_table
from vflsim.results.store.closed_forms import FILE, curves_of, read_closed_forms, read_left_out
from vflsim.results.store.json_files import damaged
from vflsim.results.store.write import SUMMARIES
from vflsim.results.verify.scenario import ByScenario
from vflsim.version import __version__

_TAIL = 1e-4
"""How much of a curve may lie beyond its last point: ten times what is left out where it is made."""
_NEAR = 1e-6
"""How far a probability may be from the closed form: other machines round otherwise."""
_ROUNDING = 1e-9
"""How far, in parts, a number of the summary may be from that of the runs: other machines round otherwise."""
_Key: TypeAlias = tuple[str, int]
"""The quantity of a curve, and its client (-1: none)."""


def summary_problems(results: Results) -> Iterator[str]:
    """Yield a sentence for the first value of the summary that is not that of the runs.

    Without the tables of all runs there is none: what is wrong with those has a sentence of its own.
    """
    path = results.folder / SUMMARIES[0]
    if not path.is_file() or not _of_this_version(results):
        return
    try:
        with opened(path) as file:
            given = pq.read_table(file, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, str(error)) from error
    try:
        again = to_table(summarise(results))
    except ResultsError:
        return
    if given.column_names != again.column_names or given.num_rows != again.num_rows:
        yield (
            f"{path.name} has {given.num_rows} rows and the columns {', '.join(given.column_names)}; the runs give "
            f"{again.num_rows} and {', '.join(again.column_names)}"
        )
        return
    for column in given.column_names:
        pairs = zip(given[column].to_pylist(), again[column].to_pylist(), strict=True)
        for row, (one, other) in enumerate(pairs):
            if not _alike(one, other):
                measure = again["measure"][row].as_py()
                yield f"{path.name}, row {row} ({measure}): {column} is {one!r}, and the runs give {other!r}"
                return


def curve_problems(results: Results, scenario: ByScenario) -> Iterator[str]:
    """Yield a sentence for each closed form that is missing, incomplete, or not that of the scenario's timing."""
    try:
        curves, left_out = read_closed_forms(results.folder), read_left_out(results.folder)
    except ResultsError as error:
        yield str(error)
        return
    if curves is None:
        return
    reasons = {(each.protocol, each.quantity) for each in left_out}
    for name in results.protocols:
        each = (curve for _, curve in curves[curves["protocol"] == name].groupby(["quantity", "client"]))
        own = {(str(curve["quantity"].iloc[0]), int(curve["client"].iloc[0])): curve for curve in each}
        broken = {key: problem for key, curve in own.items() if (problem := _of_curve(curve))}
        if not broken and (own or (name, ROUND) not in reasons) and _of_this_version(results):
            broken = _of_laws(name, own, scenario, {what.replace(" ", "_") for who, what in reasons if who == name})
        for (quantity, client), problem in broken.items():
            of = f", client {client}" if client >= 0 else ""
            yield f"{FILE}: the {quantity} of {name}{of}: {problem}"


def _of_laws(name: str, own: dict[_Key, pd.DataFrame], scenario: ByScenario, reasons: set[str]) -> dict[_Key, str]:
    """Say which curves of a protocol differ from those that its timing gives at the same points."""
    resolved = scenario.setting(name)
    if resolved is None:
        return {}
    at = {quantity: curve["x"].to_numpy() for (quantity, _), curve in own.items()}
    try:
        findings = closed_forms_of(scenario.protocol(name), resolved)
        again = curves_of(name, [each for each in findings if isinstance(each, ClosedForm)], at)
    except Exception:  # there is nothing to compare with; the study has listed why
        return {}
    expected = {(quantity, client): (lower, upper) for _, quantity, client, _, lower, upper in again}
    broken: dict[_Key, str] = {key: "is missing" for key in expected.keys() - own.keys() if key[0] not in reasons}
    for key, curve in own.items():
        if key not in expected:
            broken[key] = "does not follow from the scenario's timing"
            continue
        given = (curve[name].to_numpy() for name in ("cdf", "cdf_upper"))
        if any(
            len(one) != len(other) or np.abs(one - other).max() > _NEAR
            for one, other in zip(given, expected[key], strict=True)
        ):
            broken[key] = "is not that of the scenario's timing"
    return broken


def _of_this_version(results: Results) -> bool:
    """Whether this version of vflsim has written all runs: others may have other statistics and closed forms."""
    return all(run.info.versions.get("vflsim") == __version__ for run in results.runs)


def _alike(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING) or one == other
    return one == other


def _of_curve(curve: pd.DataFrame) -> str:
    """Say what is wrong with the points of a curve, if anything is."""
    x, lower, upper = (curve[name].to_numpy() for name in ("x", "cdf", "cdf_upper"))
    if (np.diff(x) <= 0).any():
        return "x does not ascend"
    for name, values in (("cdf", lower), ("cdf_upper", upper)):
        if ((values < 0) | (values > 1) | (np.diff(values, prepend=0) < -_NEAR)).any():
            return f"{name} is no distribution"
        if values[-1] < 1 - _TAIL:
            return f"{name} ends at {values[-1]:g}"
    return "cdf exceeds cdf_upper" if (lower > upper + _NEAR).any() else ""
