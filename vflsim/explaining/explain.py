"""Explain the clients of finished runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd

from vflsim.errors import ResultsError
from vflsim.explaining.clients import client_table
from vflsim.explaining.embedded import planes
from vflsim.explaining.heads import HeadedModels
from vflsim.results.read import Results
from vflsim.results.store.scenario import stored_scenario
from vflsim.scenario.data import ScenarioData
from vflsim.scenario.models import Scenario


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
