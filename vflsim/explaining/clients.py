"""The importance of clients: the norms of their heads, and what noise on their test features costs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from vflsim.errors import DataError
from vflsim.explaining.heads import HeadedModels
from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.data.spec import FeatureNoise
from vflsim.results.read import StoredRun
from vflsim.scenario.models import Scenario
from vflsim.vocabulary.metrics import higher_is_better
from vflsim.vocabulary.selections import members


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
    joint = data.joint | {"test": data.joint["test"].clone()}
    columns = dict(enumerate(data.columns, start=1))
    FeatureNoise(select="all", sd=sd).put_on(joint["test"].numpy(), columns, "perturbed_test", seed)
    return data.with_joint(joint)


def rank_correlation(clients: pd.DataFrame) -> float:
    """Return Spearman's ρ of the norms and the drops of one run's clients; NaN if either is constant."""
    norms, drops = clients["weight_norm"], clients["drop"]
    varied = norms.nunique() > 1 and drops.nunique() > 1
    return float(norms.corr(drops, method="spearman")) if varied else np.nan
