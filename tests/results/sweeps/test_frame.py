"""``vflsim.sweep`` and ``vflsim.read_sweep``: one tidy frame of all runs."""

from pathlib import Path

import numpy as np
import pytest
from tiny_worlds import raw

import vflsim
from vflsim.errors import ScenarioError

WORLD = {
    "protocols": {"wait": {"kind": "synchronous"}, "fast": {"kind": "t_synchronous", "t": 2}},
    "timing": {"clients": [{"select": "all", "upload_delay": "1 s"}]},
    "stop": {"rounds": 4},
    "target": {"test_accuracy": 0.05, "for": "1 evaluations"},
    "seeds": [0],
    "record": "rounds",
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    over = {"fast.t": [1, 3], "upload_delay": "5, 2000 ms"}
    return vflsim.sweep(raw(**WORLD), over, tmp_path_factory.mktemp("swept") / "out").folder


@pytest.mark.slow
def test_a_row_a_run_with_keys_as_numbers_in_their_unit(sweep: Path) -> None:
    frame = vflsim.read_sweep(sweep)
    assert list(frame)[:5] == ["t", "upload_delay_ms", "protocol", "seed", "status"]
    assert len(frame) == 2 * 2 * 2
    assert set(zip(frame["t"], frame["upload_delay_ms"], strict=True)) == {(1, 5), (1, 2000), (3, 5), (3, 2000)}
    assert frame["t"].dtype == np.int64
    slow = frame.query("upload_delay_ms == 2000 and protocol == 'wait'")
    assert slow["round_duration_s"].to_numpy() == pytest.approx(2, rel=0.01)
    assert slow["end_s"].to_numpy() == pytest.approx(8, rel=0.01)
    assert (frame["status"] == "finished").all()


def test_costs_to_a_target_that_was_not_reached_are_nan(sweep: Path) -> None:
    frame = vflsim.read_sweep(sweep, {"test_accuracy": 1.0})
    assert not frame["reached"].any()
    assert frame[["time_to_target_s", "rounds_to_target", "bytes_to_target"]].isna().all(axis=None)
    assert vflsim.read_sweep(sweep)["time_to_target_s"].notna().equals(vflsim.read_sweep(sweep)["reached"])


def test_failed_runs_have_a_row_with_their_error_and_a_warning_counts_them(tmp_path: Path) -> None:
    rates = [{"kind": "sgd", "lr": 0.1}, {"kind": "sgd", "lr": 1e300}]
    with pytest.warns(UserWarning, match=r"1 of 4 runs failed, the first at server_optimizer = .*wait, seed 0"):
        sweep = vflsim.sweep(
            raw(
                **WORLD
                | {"protocols": {"wait": {"kind": "synchronous", "training": {}}, "fast": {"kind": "asynchronous"}}}
            ),
            {"protocols.wait.training.server_optimizer": rates},
            tmp_path / "out",
        )
    frame = vflsim.read_sweep(sweep.folder)
    lost = frame[frame["status"] != "finished"]
    assert len(lost) == 1
    assert set(lost["server_optimizer"]) == {"{kind: sgd, lr: 1e+300}"}
    assert lost["error"].notna().all()
    assert lost["end_s"].isna().all()


def test_a_key_with_the_name_of_a_measure_keeps_its_whole_name(tmp_path: Path) -> None:
    vflsim.sweep(raw(**WORLD | {"seeds": [0]}), {"stop.rounds": [2, 3]}, tmp_path / "out", timing_only=True)
    frame = vflsim.read_sweep(tmp_path / "out")
    assert frame["stop.rounds"].tolist() == frame["rounds"].tolist() == [2, 2, 3, 3]


def test_zip_pairs_values_in_python_too(tmp_path: Path) -> None:
    over = {"t": [1, 3], "upload_delay": ["5 ms", "9 ms"]}
    sweep = vflsim.sweep(raw(**WORLD), over, tmp_path / "out", zip=True, timing_only=True)
    assert sweep.values == ({"t": 1, "upload_delay": "5 ms"}, {"t": 3, "upload_delay": "9 ms"})
    with pytest.raises(ScenarioError, match="different lengths"):
        vflsim.sweep(raw(**WORLD), {**over, "t": [1]}, tmp_path / "out", zip=True)
