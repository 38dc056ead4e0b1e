"""Queries under deadlines of live runs: answered in the study's process, with the weights of all parties."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from command_line import Ended
from tiny_worlds import RANDOM_TIMING, raw


@pytest.mark.slow
def test_a_live_run_answers_under_deadlines_as_the_simulation_does(
    tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    asked = {"every": "2 rounds", "deadline": ["20 ms", "60 ms"], "query_rows": 4}
    said = raw("synchronous", timing=RANDOM_TIMING, stop={"rounds": 4}, evaluate=asked)
    said["partition"]["clients"] = 2
    scenario, live, simulated = tmp_path / "scenario.yaml", tmp_path / "live", tmp_path / "simulated"
    scenario.write_text(json.dumps(said))
    assert vflsim("run", scenario, "--out", simulated, "--no-report", "--eager").status == 0
    ended = vflsim("live", scenario, "--out", live, "--no-report")
    assert ended.status == 0, ended.err
    assert "no queries were answered" not in ended.out + ended.err
    for name in ("arrivals", "answers"):
        one, other = (pd.read_parquet(at / "synchronous" / "seed-0" / f"{name}.parquet") for at in (live, simulated))
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    printed = [vflsim("compare", at).out for at in (live, simulated)]
    told = [[line for line in each.splitlines() if "answer" in line or "deadline" in line] for each in printed]
    assert told[0] == told[1]
    assert told[0]
