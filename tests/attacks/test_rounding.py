"""What rounding changes on finished runs, beside Thm 1."""

from __future__ import annotations

from pathlib import Path

import pytest
from attacked_runs import finished

from vflsim.attacks import chosen, evaluate
from vflsim.errors import ResultsError

ENTRIES = {
    "linear": {"kind": "synchronous", "codec": "round", "models": {"server": {"kind": "linear"}}},
    "mlp": {"kind": "synchronous", "codec": "round", "models": {"server": {"kind": "mlp", "hidden": [8]}}},
    "float": {"kind": "synchronous"},
}


def test_a_linear_server_never_moves_beyond_the_first_order_term(tmp_path: Path) -> None:
    results = finished(ENTRIES, tmp_path / "study", stop={"rounds": 20})
    found = evaluate(results, chosen(["rounding"], ["rounding.rows=20"]))
    values = {name: own.set_index("measure")["value"] for name, own in found.tables["rounding"].groupby("protocol")}
    assert values.keys() == {"linear", "mlp"}
    assert 0 < values["linear"]["moved"] <= values["linear"]["first_order"]
    assert values["linear"][["remainder", "within", "proven"]].tolist() == [0, 1, 1]
    assert values["mlp"]["proven"] == 0
    assert values["mlp"]["remainder"] == 0  # of ReLU, nearly everywhere
    assert found.left_out["rounding of float"].startswith("its uploads are not rounded")


def test_saturated_rows_have_no_bound(tmp_path: Path) -> None:
    loud = ENTRIES["linear"] | {"training": {"client_optimizer": {"kind": "sgd", "lr": 1e4}}}
    results = finished({"loud": loud}, tmp_path / "study", stop={"rounds": 2})
    with pytest.raises(ResultsError, match="all rows saturate"):
        evaluate(results, chosen(["rounding"], []))
