"""Explain the clients of finished runs: heads' weights, noisy test features, embeddings; as tables and a scenario."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vflsim.errors import DataError, ResultsError, ScenarioError
from vflsim.intervals import t_interval
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.data.spec import FeatureNoise
from vflsim.results.read import Results, StoredRun
from vflsim.results.store.manifest import stored_scenario
from vflsim.results.store.write import frame_table, write_file
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.streams import SHARED, generator, party_name
from vflsim.tables import Cell, DataTable
from vflsim.tables.formats import TABLES_FILE, markdown, packed
from vflsim.timing.floats import Floats
from vflsim.trained import TrainedModels
from vflsim.vocabulary import plain_yaml
from vflsim.vocabulary.amounts import Amount
from vflsim.vocabulary.expressions import members
from vflsim.vocabulary.metrics import higher_is_better


def client_table(run: StoredRun, models: HeadedModels, scenario: Scenario, sd: float) -> pd.DataFrame:
    """Tabulate the participants of a run, with the columns of ``Explanation.clients``.

    Each client's test features get N(0, ``sd``²) in turn, in scaled units, while the others' stay clean.
    """
    perturbed = HeadedModels(run, scenario, noisy_test(models.data, sd, run.seed)).answers()
    answers, norms = models.answers(), models.norms()
    metric = models.data.task.metric_names[0]
    clean = models.score(answers)[metric]
    noisy = [models.score({**answers, client: perturbed[client]})[metric] for client in answers]
    noise = scenario.data.noise
    trained_noisy = set() if noise is None else set(members(noise.select, scenario.symbols))
    table = pd.DataFrame(
        {
            "protocol": run.protocol,
            "seed": run.seed,
            "client": list(answers),
            "weight_norm": norms,
            "share": norms / norms.sum(),
            "rank": (-pd.Series(norms)).rank(method="min").astype("int64"),
            "noisy_features": [client in trained_noisy for client in answers],
            "metric": f"test_{metric}",
            "clean": clean,
            "perturbed": noisy,
        }
    )
    fall = table["clean"] - table["perturbed"]
    return table.assign(drop=fall if higher_is_better(metric) else -fall)


def noisy_test(data: LoadedData, sd: float, seed: int) -> LoadedData:
    """Return the data with N(0, ``sd``²) on all clients' test features; draws are a function of (seed, client).

    Raises DataError for data with categorical columns.
    """
    if data.coded_shapes:
        what = "clients have categorical columns, and noise is for numbers"
        raise DataError(what, data.name, "data with numbers alone", "set `data.encoding: one_hot`")
    joint = {**data.joint, "test": data.joint["test"].clone()}
    columns = dict(enumerate(data.columns, start=1))
    FeatureNoise(select="all", sd=sd).put_on(joint["test"].numpy(), columns, "perturbed_test", seed)
    return data.with_joint(joint)


def rank_correlation(clients: pd.DataFrame) -> float:
    """Return Spearman's ρ of the norms and the drops of one run's clients; NaN if either is constant."""
    norms, drops = clients["weight_norm"], clients["drop"]
    varied = norms.nunique() > 1 and drops.nunique() > 1
    return float(norms.corr(drops, method="spearman")) if varied else np.nan


PERPLEXITY = 30.0
"""The default of scikit-learn; less where there are few rows."""


TOGETHER = "all clients"
"""The name of all participants' embeddings side by side."""


def planes(models: HeadedModels, order: list[int], rows: int) -> pd.DataFrame:
    """Map embeddings of up to ``rows`` test rows, drawn by a fixed seed, to the plane.

    Those of the most and the least important client (the first and the last of ``order``), and of all side by side.
    Columns: embedding, row, label, x, y; labels are names of classes, or values, as text.
    """
    labels = models.data.labels["test"]
    chosen = np.sort(generator(0, SHARED, "tsne").permutation(len(labels))[:rows])
    at = torch.from_numpy(chosen)
    ends = list(dict.fromkeys((order[0], order[-1])))
    shown = {party_name(client): models.embedding(client, at) for client in ends}
    if len(order) > 1:
        shown[TOGETHER] = torch.cat([models.embedding(client, at) for client in models.heads], dim=1)
    names = models.data.class_names
    values = labels[at].flatten().tolist()
    label = [names[int(value)] if names else f"{value:g}" for value in values]
    frames = [
        pd.DataFrame({"embedding": name, "row": chosen, "label": label}).join(plane(h)) for name, h in shown.items()
    ]
    return pd.concat(frames, ignore_index=True)


def plane(h: Tensor) -> pd.DataFrame:
    """Map rows (rows, d) to the plane: columns x and y."""
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(h) - 1) / 3)
    # Not init="pca": it divides by the deviation, and crashes where a model gives all rows the same embedding.
    points = TSNE(perplexity=perplexity, init="random", random_state=0).fit_transform(h.double().numpy())
    return pd.DataFrame(points.astype(np.float64), columns=["x", "y"])


class HeadedModels(TrainedModels):
    """Trained models whose prediction is Σ_k h^k W_k; ``heads`` has W_k, (d_f, d_c), of every participant.

    Raises ``ValueError`` if clients have no linear heads, and ``ResultsError`` as ``TrainedModels`` does.
    """

    def __init__(self, run: StoredRun, scenario: Scenario, data: LoadedData) -> None:
        super().__init__(run, scenario, data)
        self.heads: Mapping[int, Tensor] = self.protocol.heads(self.setting, self.learners)

    def norms(self) -> Floats:
        """Return the Frobenius norm of every participant's head, (participants,)."""
        return np.array([float(torch.linalg.norm(head.double())) for head in self.heads.values()])

    def embedding(self, client: int, rows: Tensor) -> Tensor:
        """Compute h^k of some test rows, (rows, d_f)."""
        model = self.learners.clients[client].embedding
        model.module.eval()
        with torch.no_grad():
            h: Tensor = model(self.data.features[client - 1]["test"][rows])
        return h


@dataclass(frozen=True)
class Explanation:
    """The findings about a study's clients from the models of its runs.

    ``clients`` has a row per protocol, seed and participant: ``weight_norm`` ‖W_k‖ (Frobenius), its ``share`` of their
    sum, its ``rank`` from 1 for the largest, ``noisy_features`` (in the scenario's ``data.noise``), the task's first
    ``metric`` of ``clean`` test rows and of test rows where noise ``perturbed`` this client's features, and ``drop``:
    by how much that is worse.
    ``planes`` has the embeddings of test rows in the plane: protocol, seed, embedding, row, label, x, y, for the first
    seed of each protocol. ``left_out`` are protocols and runs that cannot be explained, with the reasons.
    """

    scenario: Scenario
    clients: pd.DataFrame
    planes: pd.DataFrame
    sd: float
    left_out: dict[str, str]

    @property
    def protocols(self) -> list[str]:
        """The explained protocols, in the scenario's order."""
        return list(self.clients["protocol"].unique())


def explain(
    results: Results,
    protocols: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
    sd: float = 1.0,
    rows: int = 1000,
) -> Explanation:
    """Explain the clients of finished runs, of all protocols and seeds unless some are named.

    ``sd`` is the standard deviation of the noise on test features, in scaled units; ``rows`` is how many test rows are
    mapped to the plane at most (fewer than 4: none). Raises ``ResultsError`` if no run can be explained, if a named
    protocol cannot be, or if weights or data are not those of the runs.
    """
    scenario = stored_scenario(results.folder, results.runs)
    data = ScenarioData(scenario)
    wanted = [run for run in results.runs if seeds is None or run.seed in seeds]
    left_out: dict[str, str] = {f"{run.protocol}, seed {run.seed}": run.info.status for run in wanted if run.failed}
    tables, mapped = [], []
    for name in results.protocols if protocols is None else [each for each in results.protocols if each in protocols]:
        runs = [run for run in wanted if run.protocol == name and not run.failed]
        for number, run in enumerate(runs):
            try:
                models = HeadedModels(run, scenario, data.of(scenario.training_of(name)))
            except ValueError as error:
                if protocols is not None:
                    what, _, allowed = str(error).partition("; allowed: ")
                    raise ResultsError(f"{name}: {what}", str(results.folder), allowed) from None
                left_out[name] = str(error)
                break
            table = client_table(run, models, scenario, sd)
            tables.append(table)
            if number == 0 and min(rows, len(models.data.labels["test"])) > 3:
                order = table.sort_values(["rank", "client"])["client"].tolist()
                plane = planes(models, order, rows)
                plane.insert(0, "protocol", name)
                plane.insert(1, "seed", run.seed)
                mapped.append(plane)
    if not tables:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        what = f"no run can be explained ({reasons or 'none of this protocol and seed'})"
        raise ResultsError(what, str(results.folder), "finished runs of protocols with linear heads")
    clients = pd.concat(tables, ignore_index=True)
    return Explanation(
        scenario, clients, pd.concat(mapped, ignore_index=True) if mapped else pd.DataFrame(), sd, left_out
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
    tables = {"clients": explanation.clients, "planes": explanation.planes}
    written = [write_file(folder / f"{name}.parquet", frame_table(each)) for name, each in tables.items() if len(each)]
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
    return "\n".join([title, *head, "", plain_yaml.dump(raw)])


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
