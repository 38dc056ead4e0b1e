"""Coded embeddings of a batch together: exact where equations suffice, nothing beyond the sums where masks suffice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from attacked_runs import finished

from vflsim.attacks import chosen, evaluate
from vflsim.attacks.coded_embeddings import CodedAnswers, quantiser_of, solved
from vflsim.coding.field import PrimeField
from vflsim.coding.lagrange import LagrangeCode
from vflsim.coding.quantise import Quantiser
from vflsim.errors import ResultsError
from vflsim.finished import eliminated, stored_scenario
from vflsim.scenario import ScenarioData


def attacked(
    folder: Path, width: int, rounds: int = 1, clients: int = 3, segments: int = 1, batch: Any = "all"
) -> pd.DataFrame:
    """The rows of breast_cancer, 30 features, are in every round unless ``batch`` says less; half of them are known."""
    results = finished(
        {"it": {"kind": "fedvs", "K": segments}},
        folder / "study",
        data={"name": "breast_cancer"},
        partition={"clients": clients, "by": "columns"},
        models={
            "client": {"kind": "polynomial", "degree": 1, "embedding": width, "bias": False},
            "aggregate": "mean",
            "server": {"kind": "mlp", "hidden": [8]},
        },
        training__batch=batch,
        stop={"rounds": rounds},
        evaluate={"every": "100 rounds"},
        record={"tables": "summary", "views": {"rows": 500, "keep": "all"}},
    )
    options = [f"coded_embeddings.rounds={rounds}", "coded_embeddings.client=1"]
    return (
        evaluate(results, chosen(["coded_embeddings"], options))
        .tables["coded_embeddings"]
        .set_index(["method", "measure"])
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("segments", "clients", "width", "rounds"),
    [(1, 3, 20, 1), (1, 3, 10, 2), (2, 5, 20, 1)],  # R h rounds ≥ (K + T) 30, the number of equations and of unknowns
)
def test_enough_equations_give_features_exactly(
    segments: int, clients: int, width: int, rounds: int, tmp_path: Path
) -> None:
    table = attacked(tmp_path, width, rounds, clients, segments)["value"]
    assert table["field", "determined"] == 1
    assert table["field", "r2"] > 0.99999
    assert table["field", "partial_r2"] > 0.999
    assert table["linear", "partial_r2"] < 0.2  # ridge regression does not see what is linear modulo p


def test_where_masks_suffice_there_is_nothing_beyond_the_sums(tmp_path: Path) -> None:
    """2 h = 30 further numbers about 30 features with 30 masks: uniform, whatever the features are."""
    table = attacked(tmp_path, 15)
    assert table.loc[("field", "determined"), "value"] == 0
    assert table.loc[("field", "partial_r2"), "value"] == 0
    assert table.loc[("field", "r2"), "value"] == table.loc[("field", "r2"), "chance"]
    assert table.loc[("linear", "partial_r2"), "value"] < 0.02


def test_one_equation_less_than_unknowns_determines_nothing(tmp_path: Path) -> None:
    assert attacked(tmp_path, 19)["value"]["field", "determined"] == 0  # 57 equations, 60 unknowns


def test_batches_with_fewer_known_rows_than_equations_determine_nothing(tmp_path: Path) -> None:
    assert attacked(tmp_path, 20, batch=64)["value"]["field", "determined"] == 0


def test_as_many_clients_as_segments_and_masks_know_all_features_together(tmp_path: Path) -> None:
    """Their shares of a third client's rows are K + T = 2 points of polynomials: 40 known rows give all others.

    One client's shares, and those of rows in another order, fit no known row.
    """
    results = finished(
        {"it": {"kind": "fedvs", "K": 1}},
        tmp_path / "study",
        data={"name": "breast_cancer"},
        partition={"clients": 3, "by": "columns"},
        models={
            "client": {"kind": "polynomial", "degree": 1, "embedding": 4, "bias": False},
            "aggregate": "mean",
            "server": {"kind": "mlp", "hidden": [8]},
        },
        stop={"rounds": 1},
        record={"tables": "summary", "views": 300},
    )
    (run,) = results.runs
    views, quantiser, scenario = run.views(), quantiser_of(run), stored_scenario(results.folder, results.runs)
    x = ScenarioData(scenario).of(scenario.training_of("it")).features[2]["train"][torch.from_numpy(views.rows)]
    integers = quantiser.data(x)
    shares = [view.values.long() for view in views if (view.sender, view.kind) == ("client-3", "data_share")]
    assert len(shares) == 2

    def solved_by(held: torch.Tensor) -> Any:
        known = torch.cat([held[:40], quantiser.field.embed(integers[:40])], 1)
        return eliminated(quantiser.field, known, held.shape[1])

    together = torch.cat(shares, 1)
    echelon = solved_by(together)
    assert len(echelon.rest) > 10  # further known rows, which hold
    assert not echelon.rest.any()
    elements, exact = echelon.explained(together[40:])
    assert exact.double().mean() > 0.99
    assert torch.equal(quantiser.field.signed(elements)[exact], integers[40:][exact])
    permuted = together[torch.from_numpy(np.random.default_rng(0).permutation(300))]
    for nothing in (shares[0], permuted):
        assert solved_by(nothing).rest[:, nothing.shape[1] :].any(0).all()


def test_other_runs_are_left_out_with_the_reason(tmp_path: Path) -> None:
    plain = finished({"it": {"kind": "synchronous"}}, tmp_path / "plain", record={"tables": "summary", "views": 60})
    with pytest.raises(ResultsError, match="no elements of a field"):
        evaluate(plain, chosen(["coded_embeddings"], []))


def test_solutions_are_those_of_every_batch_by_itself() -> None:
    """Two batches under other models and masks: 3 · 4 equations for 6 features and 6 masks, counted by hand."""
    rng, field, code = np.random.default_rng(3), PrimeField(), LagrangeCode(PrimeField(), 1, 1, 3)
    bits, quantiser, rows = np.random.Philox(key=9), Quantiser(PrimeField(), 8, 8), 60
    x = rng.integers(-300, 300, size=(rows, 6))
    shares = code.encode(torch.stack([field.embed(torch.from_numpy(x)), field.uniform((rows, 6), bits)]))
    batch, elements = np.arange(rows) % 2, torch.zeros(rows, 12, dtype=torch.int64)
    for each in (0, 1):
        model = code.encode(torch.stack([field.uniform((6, 4), bits), field.uniform((6, 4), bits)]))
        own = torch.from_numpy(batch == each)
        elements[own] = torch.cat([*field.matmul(shares[:, own], model)], 1)
    y, order = x[:, :2] / 2**8, rng.permutation(rows)
    known, others = order[:40], order[40:]
    alone = np.zeros((20, 2))

    def of(batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen = CodedAnswers(np.zeros((rows, 1)), elements, batch, np.ones(rows, bool))
        return solved(seen, np.arange(rows), y, known, others, quantiser, alone)

    guess, determined = of(batch)
    assert determined.all()
    np.testing.assert_array_equal(guess, y[others])
    guess, determined = of(np.zeros(rows, int))  # as if they were one batch
    assert not determined.any()
    assert guess is not alone
    np.testing.assert_array_equal(guess, alone)
