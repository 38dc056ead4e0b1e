"""``closed_forms.parquet``: distributions that follow from a scenario's timing without simulation, as curves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from vflsim.analysis.findings import ClosedForm
from vflsim.files import parsed_json
from vflsim.results.store.pages import damaged
from vflsim.results.store.schema import CLOSED_FORMS, CURVES, read_table
from vflsim.results.store.write import write_file
from vflsim.timing.floats import Floats
from vflsim.vocabulary.on_demand import pd

FILE = f"{CLOSED_FORMS}.parquet"
_TAIL = 1e-5
_KNOTS = 25
_BETWEEN = 16
_MOST_STEPS = 400
_MOST_CLIENTS = 64

_REMEDY = "run the scenario again"
_LEFT_OUT = b"left_out"
"""Key of the table's metadata that holds the missing closed forms as a JSON list."""

Curve: TypeAlias = tuple[str, str, int, Floats, Floats, Floats]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A missing closed form with the reason; ``failed``: its computation ended in an error."""

    protocol: str
    quantity: str
    reason: str
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.protocol}: {self.quantity}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ClosedForms:
    """The table of ``closed_forms.parquet`` (None: no row and nothing missing) and the missing closed forms."""

    table: pa.Table | None
    left_out: tuple[LeftOut, ...]


def curves_of(protocol: str, findings: Sequence[ClosedForm], at: Mapping[str, Floats] | None = None) -> list[Curve]:
    """Compute the curves of a protocol's findings: round durations, and ages for each client.

    For more than 64 clients there is one curve of ages: of a client picked at random. ``at`` gives the points of a
    quantity; by default they are chosen so that both tails are there.
    """
    at = {} if at is None else at
    curves, aged = list[Curve](), list[ClosedForm]()
    for form in findings:
        if form.name == "round duration" and form.law is not None:
            x = at["round_duration"] if "round_duration" in at else _times(form)
            upper = form.law.cdf(x)
            curves.append(
                (protocol, "round_duration", -1, x, upper if form.slower is None else form.slower.cdf(x), upper)
            )
        elif form.name == "client age" and form.law is not None:
            aged.append(form)
    if not aged:
        return curves
    x = at["client_age"] if "client_age" in at else _steps(aged)
    cdfs = [(form.clients, form.law.cdf(x)) for form in aged if form.law is not None]
    clients = sum(len(members) for members, _ in cdfs)
    if clients > _MOST_CLIENTS:
        mean = sum(len(members) / clients * cdf for members, cdf in cdfs)
        return [*curves, (protocol, "client_age", -1, x, np.asarray(mean), np.asarray(mean))]
    each = {client: cdf for members, cdf in cdfs for client in members}
    return [*curves, *((protocol, "client_age", client, x, each[client], each[client]) for client in sorted(each))]


def table_of(curves: Sequence[Curve], left_out: Sequence[LeftOut] = ()) -> pa.Table | None:
    """Make the table of curves, with the missing closed forms in its metadata; None if there are neither."""
    if not curves and not left_out:
        return None
    schema = CURVES.with_metadata({_LEFT_OUT: json.dumps([asdict(each) for each in left_out])}) if left_out else CURVES
    if not curves:
        return schema.empty_table()
    columns = [
        [name for protocol, *_, x, _, _ in curves for name in [protocol] * len(x)],
        [name for _, quantity, _, x, _, _ in curves for name in [quantity] * len(x)],
        np.concatenate([np.full(len(x), client, np.int32) for _, _, client, x, _, _ in curves]),
        *(np.concatenate([curve[place] for curve in curves]) for place in (3, 4, 5)),
    ]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, CURVES, strict=True)], schema=schema
    )


def write_closed_forms(folder: Path | str, table: pa.Table | None) -> None:
    """Write the table into a results folder, or delete it there if it is None. Raises ResultsError."""
    path = Path(folder) / FILE
    if table is None:
        path.unlink(missing_ok=True)
    else:
        write_file(path, table)


def read_closed_forms(folder: Path | str) -> pd.DataFrame | None:
    """Read the curves of a results folder; None without closed forms. Raises ResultsError if damaged."""
    table = _read(Path(folder) / FILE)
    return None if table is None else table.to_pandas()


def read_left_out(folder: Path | str) -> tuple[LeftOut, ...]:
    """Read which closed forms a results folder lacks, and why. Raises ResultsError if damaged."""
    path = Path(folder) / FILE
    table = _read(path)
    if table is None:
        return ()
    try:
        return tuple(LeftOut(**each) for each in parsed_json((table.schema.metadata or {}).get(_LEFT_OUT, b"[]")))
    except (ValueError, TypeError) as error:
        raise damaged(path, f"the list of missing closed forms cannot be read: {error}", _REMEDY) from error


def _read(path: Path) -> pa.Table | None:
    return read_table(path, CLOSED_FORMS, remedy=_REMEDY) if path.is_file() else None


def _times(form: ClosedForm) -> Floats:
    """Choose the points of a curve: quantiles out to 1e-5 in both tails, and points between them."""
    assert form.law is not None
    half = np.geomspace(_TAIL, 0.5, _KNOTS // 2 + 1)
    levels = np.concatenate([half, 1 - half[-2::-1]])
    ends = np.concatenate([form.law.quantile(levels), (form.slower or form.law).quantile(levels)])
    knots = np.unique(np.concatenate([ends, [form.law.support[0]]]))
    between = np.linspace(knots[:-1], knots[1:], _BETWEEN, endpoint=False).T.ravel()
    # An atom makes a step, not a slope: add the point just before it.
    jumps = [x for law in (form.law, form.slower or form.law) for x in law.breaks if knots[0] <= x <= knots[-1]]
    before = np.nextafter(np.array(jumps[:_MOST_STEPS]), -np.inf)
    return np.unique(np.concatenate([between, knots, before[before >= 0], jumps[:_MOST_STEPS]]))


def _steps(aged: Sequence[ClosedForm]) -> Floats:
    """List ages from 0 to the oldest client's 1 − 1e-5 quantile: every age if they are few."""
    oldest = max(float(form.law.quantile(1 - _TAIL)) for form in aged if form.law is not None)
    few = np.arange(min(oldest, _MOST_STEPS) + 1)
    return few if oldest <= _MOST_STEPS else np.unique(np.append(few, np.floor(np.geomspace(_MOST_STEPS, oldest, 200))))
