"""Explanations as text: for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from vflsim.explaining.clients import rank_correlation
from vflsim.explaining.explain import Explanation
from vflsim.intervals.means import t_interval
from vflsim.results.store.write import write_file
from vflsim.tables import Cell, DataTable
from vflsim.tables.formats import TABLES_FILE, markdown, packed
from vflsim.timing.floats import Floats
from vflsim.vocabulary.amounts import Amount

CLIENTS = pa.schema(
    [
        ("protocol", pa.string()),
        ("seed", pa.int64()),
        ("client", pa.int64()),
        ("weight_norm", pa.float64()),
        ("share", pa.float64()),
        ("rank", pa.int64()),
        ("noisy_features", pa.bool_()),
        ("metric", pa.string()),
        ("clean", pa.float64()),
        ("perturbed", pa.float64()),
        ("drop", pa.float64()),
    ]
)
PLANES = pa.schema(
    [
        ("protocol", pa.string()),
        ("seed", pa.int64()),
        ("embedding", pa.string()),
        ("row", pa.int64()),
        ("label", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float64()),
    ]
)
FORMATS = {"weight_norm": ("", ".3g"), "share": ("%", ".1f"), "perturbed": ("", ".4f"), "drop": ("", ".4f")}
"""Units and digits of the columns of numbers."""


def explanation_tables(explanation: Explanation) -> Iterator[DataTable]:
    """Yield a table for each protocol: a row per client, the most important first; means over seeds ± 95 %."""
    for name in explanation.protocols:
        own = explanation.clients[explanation.clients["protocol"] == name]
        yield DataTable(_header(own), _rows(own), title=_title(own), notes=list(_notes(explanation, own)))


def explanation_markdown(explanation: Explanation) -> str:
    """Return the same as Markdown, the text of ``explain.md``."""
    title = f"{explanation.scenario.name}: clients explained"
    return markdown(explanation_tables(explanation), title, explanation.left_out)


def save(explanation: Explanation, folder: Path) -> list[Path]:
    """Write ``clients``, ``planes`` (if any; Parquet), ``explain.md`` and ``tables.json``; return their places."""
    tables = ((CLIENTS, "clients", explanation.clients), (PLANES, "planes", explanation.planes))
    written = [
        write_file(folder / f"{name}.parquet", pa.table([pa.array(frame[f.name], f.type) for f in schema], schema))
        for schema, name, frame in tables
        if len(frame)
    ]
    written.append(write_file(folder / "explain.md", explanation_markdown(explanation)))
    return [*written, write_file(folder / TABLES_FILE, packed(explanation_tables(explanation)))]


def metric_name(own: pd.DataFrame) -> str:
    """Return the name of a table's metric, in words."""
    return str(own["metric"].iloc[0]).replace("_", " ")


def _title(own: pd.DataFrame) -> str:
    seeds = own["seed"].unique()
    return f"{own['protocol'].iloc[0]}, {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def _header(own: pd.DataFrame) -> tuple[str, ...]:
    return ("client", "‖W‖", "share", f"{metric_name(own)} with noise on it", "worse by")


def _rows(own: pd.DataFrame) -> list[tuple[Cell, ...]]:
    clients = own.groupby("client")
    order = clients["share"].mean().sort_values(ascending=False, kind="stable").index
    return [
        (
            f"{client}{' (noisy features)' if clients.get_group(client)['noisy_features'].all() else ''}",
            *(mean_of(clients.get_group(client)[column].to_numpy(), *form) for column, form in FORMATS.items()),
        )
        for client in order
    ]


def _notes(explanation: Explanation, own: pd.DataFrame) -> Iterator[str]:
    runs = [run for _, run in own.groupby("seed")]
    clean = mean_of(np.array([run["clean"].iloc[0] for run in runs]), *FORMATS["perturbed"])
    yield f"{metric_name(own)} of clean rows: {clean}; noise: N(0, {explanation.sd:g}²) on one client's features"
    found = [rho for run in runs if np.isfinite(rho := rank_correlation(run))]
    if found:
        yield f"Spearman's ρ of ‖W‖ and loss: {mean_of(np.array(found), form='.2f')}"


def mean_of(values: Floats, unit: str = "", form: str = "") -> Amount:
    """Return the mean over seeds and, of several, half its 95 % interval."""
    interval = t_interval(values)
    return Amount(interval.mean, unit, interval.half_width if interval.n > 1 else np.nan, form=form)
