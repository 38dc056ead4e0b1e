"""Evaluations as text and tables: for a terminal, as Markdown, and as Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from vflsim.attacks.base import Attack
from vflsim.attacks.evaluate import VALUES, Evaluation
from vflsim.intervals.means import t_interval
from vflsim.results.store.write import write_file
from vflsim.text_table import TextTable, markdown_page
from vflsim.vocabulary.amounts import quantity

_TYPES = {"f": pa.float64(), "i": pa.int64()}


def settings_of(table: pd.DataFrame) -> list[str]:
    """Return the columns of an attack's table that hold its options."""
    return [name for name in table.columns[4:] if name not in VALUES]


def means_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return means over parties, and then over seeds: protocol, the options, measure, n, mean, low, high, chance."""
    keys = ["protocol", *settings_of(table), "measure"]
    by_seed = table.groupby([*keys, "seed"], sort=False)[["value", "chance"]].mean().reset_index()
    rows = []
    for key, own in by_seed.groupby(keys, sort=False):
        found = t_interval(own["value"].to_numpy())
        rows.append((*key, found.n, found.mean, found.low, found.high, own["chance"].mean()))
    return pd.DataFrame(rows, columns=[*keys, "n", "mean", "low", "high", "chance"])


def evaluation_tables(evaluation: Evaluation) -> Iterator[TextTable]:
    """Yield a table for each attack: rows are protocols and settings, beside what their runs reached and cost."""
    for attack in evaluation.attacks:
        if attack.kind in evaluation.tables:
            yield _table(attack, evaluation)


def evaluation_markdown(evaluation: Evaluation) -> str:
    """Return the same as Markdown, the text of ``evaluate.md``."""
    title = f"{evaluation.scenario.name}: attacks"
    return markdown_page(title, evaluation_tables(evaluation), evaluation.left_out)


def save(evaluation: Evaluation, folder: Path) -> list[Path]:
    """Write a Parquet table for each attack, and ``evaluate.md``; return their places."""
    written = []
    for kind, table in evaluation.tables.items():
        types = {name: _TYPES.get(table[name].dtype.kind, pa.string()) for name in table}
        columns = {name: pa.array(table[name], kind) for name, kind in types.items()}
        written.append(write_file(folder / f"{kind}.parquet", pa.table(columns)))
    return [*written, write_file(folder / "evaluate.md", evaluation_markdown(evaluation))]


def _table(attack: Attack, evaluation: Evaluation) -> TextTable:
    table, ends = evaluation.tables[attack.kind], evaluation.costs
    means, keys = means_of(table), ["protocol", *settings_of(table)]
    measures = [name for name in attack.measures if (means["measure"] == name).any()]
    chances = [name for name in measures if means.loc[means["measure"] == name, "chance"].notna().any()]
    metric = str(ends["metric"].iloc[0]).replace("_", " ")
    header = [", ".join(keys), *(attack.measures[name] for name in measures)]
    header += [
        *(f"chance level of {attack.measures[name]}" for name in chances),
        metric,
        "seconds",
        "bytes",
        *evaluation.to_target,
    ]
    rows = []
    for key, own in means.groupby(keys, sort=False):
        mean = {each["measure"]: each for each in own.to_dict("records")}
        reached = ends[(ends["protocol"] == key[0]) & ends["seed"].isin(table["seed"])]
        spread = t_interval(reached["value"].to_numpy())
        rows.append(
            (
                ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in key),
                *(_with_spread(mean[name]) if name in mean else "" for name in measures),
                *(f"{mean[name]['chance']:.4f}" if name in mean else "" for name in chances),
                _with_spread({"mean": spread.mean, "high": spread.high}),
                f"{reached['seconds'].mean():.4g}",
                quantity(reached["bytes"].mean(), "B"),
                *(costs[str(key[0])] for costs in evaluation.to_target.values()),
            )
        )
    options = attack.model_dump(exclude={"kind", *keys})
    notes = [
        f"{attack.note}.",
        f"Options: {', '.join(f'{name} {value}' for name, value in options.items())}.",
        f"Means over parties and seeds ± 95 % over seeds; {metric}, seconds and bytes are the runs' own, at their end.",
    ]
    return TextTable(header, rows, title=attack.title, notes=notes)


def _with_spread(found: Mapping[Any, float]) -> str:
    spread = f" ± {found['high'] - found['mean']:.4f}" if np.isfinite(found["high"]) else ""
    return f"{found['mean']:.4f}{spread}"
