"""Explanations as text: for a terminal and as Markdown."""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from vflsim.errors import ScenarioError
from vflsim.explaining.explain import Explanation, rank_correlation
from vflsim.intervals.means import t_interval
from vflsim.results.store.write import write_file
from vflsim.scenario import emit
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
        rows = explanation.clients[explanation.clients["protocol"] == name]
        yield DataTable(_header(rows), _rows(rows), title=_title(rows), notes=list(_notes(explanation, rows)))


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


def metric_name(rows: pd.DataFrame) -> str:
    """Return the name of a table's metric, in words."""
    return str(rows["metric"].iloc[0]).replace("_", " ")


def _title(rows: pd.DataFrame) -> str:
    seeds = rows["seed"].unique()
    return f"{rows['protocol'].iloc[0]}, {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def _header(rows: pd.DataFrame) -> tuple[str, ...]:
    return ("client", "‖W‖", "share", f"{metric_name(rows)} with noise on it", "worse by")


def _rows(rows: pd.DataFrame) -> list[tuple[Cell, ...]]:
    clients = rows.groupby("client")
    order = clients["share"].mean().sort_values(ascending=False, kind="stable").index
    return [
        (
            f"{client}{' (noisy features)' if clients.get_group(client)['noisy_features'].all() else ''}",
            *(mean_of(clients.get_group(client)[column].to_numpy(), *form) for column, form in FORMATS.items()),
        )
        for client in order
    ]


def _notes(explanation: Explanation, rows: pd.DataFrame) -> Iterator[str]:
    runs = [run for _, run in rows.groupby("seed")]
    clean = mean_of(np.array([run["clean"].iloc[0] for run in runs]), *FORMATS["perturbed"])
    yield f"{metric_name(rows)} of clean rows: {clean}; noise: N(0, {explanation.sd:g}²) on one client's features"
    rhos = [rho for run in runs if np.isfinite(rho := rank_correlation(run))]
    if rhos:
        yield f"Spearman's ρ of ‖W‖ and loss: {mean_of(np.array(rhos), form='.2f')}"


def mean_of(values: Floats, unit: str = "", form: str = "") -> Amount:
    """Return the mean over seeds and, of several, half its 95 % interval."""
    interval = t_interval(values)
    return Amount(interval.mean, unit, interval.half_width if interval.n > 1 else np.nan, form=form)


_NAME_LENGTH = 64


def summarised(explanation: Explanation, shares: Sequence[float]) -> str:
    """Write the scenario of a study's explained protocols, each with all clients and with parts of them, as YAML.

    For each of ``shares`` (between 0 and 1), ``NAME-top-n`` trains with so many of the most important clients, by the
    mean share of norms over seeds, and ``NAME-bottom-n`` with the least important; n is at least 1. The clients keep
    their delays, batches and initial embedding models. Raises ScenarioError if a protocol cannot leave clients out, or
    if a share leaves none or all of the clients.
    """
    raw = copy.deepcopy(explanation.scenario.document.raw)
    head, entries = [], {}
    for name in explanation.protocols:
        rows = explanation.clients[explanation.clients["protocol"] == name]
        order = rows.groupby("client")["share"].mean().sort_values(ascending=False, kind="stable").index.tolist()
        entries[name] = raw["protocols"][name]
        for share in shares:
            count = max(1, round(share * len(order)))
            if not 0 < share < 1 or count == len(order):
                what = f"{100 * share:g} % of {len(order)} clients leaves {'none' if share <= 0 else 'nobody out'}"
                raise ScenarioError(what, "vflsim explain --top", "shares between 0 and 100 % that leave somebody out")
            for end, included in (("top", order[:count]), ("bottom", order[-count:])):
                new = f"{name[: _NAME_LENGTH - 16]}-{end}-{count}"
                entries[new] = _entry(explanation, name, included)
                head.append(f"# {new}: {end} {100 * share:g} %, clients {', '.join(map(str, sorted(included)))}")
    raw["name"] = f"{raw['name'][: _NAME_LENGTH - 16]}-summarised"
    raw["protocols"] = entries
    title = "# Clients by the norm of their linear heads, from vflsim explain:"
    return "\n".join([title, *head, "", emit.dump(raw)])


def _entry(explanation: Explanation, name: str, included: Sequence[int]) -> dict[str, Any]:
    """Return a protocol's entry with these clients alone; overrides stay."""
    scenario = explanation.scenario
    protocol = scenario.protocols[name].protocol
    excluded = tuple(client for client in range(1, scenario.clients + 1) if client not in included)
    try:
        changed = protocol.without(excluded)
    except ValueError as error:
        remedy = "explain others alone: --protocol NAME"
        raise ScenarioError(f"{name}: {error}", "vflsim explain --top", remedy=remedy) from None
    raw = scenario.document.raw["protocols"][name]
    overrides = {key: value for key, value in raw.items() if key not in type(protocol).model_fields}
    return changed.model_dump(mode="json", exclude_none=True) | overrides
