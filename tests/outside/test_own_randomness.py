"""Random numbers that code from outside draws from global generators: they follow from the run alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kept_runs import KeptAt, files_of, interrupted, whole
from tiny_worlds import EAGER, raw, run

from vflsim.errors import UnkeptStateError
from vflsim.scenario import load
from vflsim.scenario.models import Scenario

MODULE = "outside_protocols.remembering"
DROPPING = {"kind": "module", "path": f"{MODULE}:Dropping"}
CASES: dict[str, dict[str, Any]] = {
    **{
        f"a learner that draws from {source}": {
            "protocols": {"it": {"kind": "module", "path": f"{MODULE}:DrawNoise", "source": source}}
        }
        for source in ("torch", "numpy", "python")
    },
    "dropout at clients": {"models__client": {**DROPPING, "embedding": 6}},
    "dropout at the server": {"models__server": DROPPING},
    "dropout at both, asynchronous": {
        "protocols": {"it": {"kind": "asynchronous"}},
        "models__client": {**DROPPING, "embedding": 6},
        "models__server": DROPPING,
    },
    "a coroutine that draws": {"protocols": {"it": {"kind": "module", "path": f"{MODULE}:Draws"}}},
}
BOTH = pytest.mark.parametrize("case", CASES)


def scenario_of(case: str, **more: Any) -> Scenario:
    said = {"protocols": {"it": {"kind": "synchronous"}}, "partition": {"clients": 2, "by": "columns"}}
    said |= {"stop": {"rounds": 5}, "evaluate": {"every": "1 rounds"}, **CASES[case], **more}
    return load(raw(**said))


def disturb() -> None:
    torch.rand(3)
    np.random.rand(5)
    random.random()


@BOTH
def test_a_run_repeats_itself_to_the_byte_whatever_was_drawn_before(case: str, tmp_path: Path) -> None:
    scenario = scenario_of(case)
    expected, last = whole(scenario)
    disturb()
    again = files_of(run(scenario), tmp_path / "again", scenario)
    assert again == files_of(expected, tmp_path / "whole", scenario)
    for number, events in enumerate((last // 3, last // 2, last * 2 // 3)):
        interrupted(scenario, tmp_path / str(number), [events])
        disturb()
        resumed = run(scenario, keeper=KeptAt(tmp_path / str(number)))
        assert files_of(resumed, tmp_path / f"resumed-{number}", scenario) == again


@BOTH
def test_what_is_drawn_depends_on_the_seed_and_not_on_batching_or_evaluations(case: str) -> None:
    scenario = scenario_of(case)
    weights = run(scenario).weights
    for other in (run(scenario, execution=EAGER), run(scenario_of(case, evaluate={"every": "3 rounds"}))):
        assert all(torch.allclose(tensor, other.weights[name], atol=1e-12) for name, tensor in weights.items())
    assert any(not tensor.equal(run(scenario, seed=1).weights[name]) for name, tensor in weights.items())


@pytest.mark.parametrize("case", [case for case in CASES if "asynchronous" not in case])
def test_real_time_draws_the_same(case: str) -> None:
    scenario = scenario_of(case)
    real = run(scenario, kind="real", speed=50.0).weights
    assert all(torch.allclose(tensor, real[name], atol=1e-12) for name, tensor in run(scenario).weights.items())


@BOTH
def test_a_run_leaves_the_global_generators_as_they_were(case: str) -> None:
    before = torch.get_rng_state(), str(np.random.get_state()), random.getstate()
    run(scenario_of(case))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (str(np.random.get_state()), random.getstate())


def test_a_module_that_counts_for_itself_is_refused_and_one_with_a_buffer_is_resumed(tmp_path: Path) -> None:
    def model(**arguments: Any) -> Scenario:
        return scenario_of("dropout at clients", models__client={**DROPPING, "embedding": 6, "arguments": arguments})

    with pytest.raises(UnkeptStateError, match=r"embed changed Dropping\.applied.*") as caught:
        run(model(counts=True))
    assert "register_buffer" in caught.value.remedy
    scenario = model(buffer=True)
    outcome, last = whole(scenario)
    interrupted(scenario, tmp_path / "kept", [last // 2])
    resumed = run(scenario, keeper=KeptAt(tmp_path / "kept"))
    assert files_of(resumed, tmp_path / "a", scenario) == files_of(outcome, tmp_path / "b", scenario)
