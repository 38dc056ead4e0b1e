"""Random numbers that code from outside draws from global generators: they follow from the run alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Ended
from kept_runs import KeptAt, assert_interruptions_change_no_byte, files_of, interrupted, whole
from ruamel.yaml import YAML
from thorough import is_thorough
from tiny_worlds import EAGER, raw, run

from vflsim.errors import ScenarioError
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.studies.checks.data import read_and_check
from vflsim.studies.checks.tryout import refuse_broken

MODULE = "outside_protocols.remembering"
DRAWING = "outside_protocols.drawing"
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
    **{
        f"an aggregate that draws from {source}": {
            "models__aggregate": {"kind": "module", "path": f"{DRAWING}:RandomWeights", "source": source}
        }
        for source in ("torch", "numpy", "python")
    },
    **{
        f"a loss that draws from {source}": {
            "protocols": {"it": {"kind": "module", "path": f"{DRAWING}:RandomLoss", "source": source}},
            "partition": {"clients": 2, "active": True},
            "models__active": {"kind": "mlp", "hidden": [7], "embedding": 6},
        }
        for source in ("torch", "numpy", "python")
    },
    "a coroutine that draws": {"protocols": {"it": {"kind": "module", "path": f"{MODULE}:Draws"}}},
}
COMMON: dict[str, Any] = {
    "protocols": {"it": {"kind": "synchronous"}},
    "partition": {"clients": 2, "by": "columns"},
    "stop": {"rounds": 5},
    "evaluate": {"every": "1 rounds"},
}
WHAT_RUNS_LEAVE = (".parquet", ".safetensors", ".csv")
PAIRS = (
    [*CASES]
    if is_thorough()
    else [
        *("a learner that draws from torch", "an aggregate that draws from numpy", "a loss that draws from python"),
        *(case for case in CASES if not case.endswith(("torch", "numpy", "python"))),
    ]
)
"""Every part that draws, and every source."""
BOTH = pytest.mark.parametrize("case", PAIRS)


def scenario_of(case: str, **more: Any) -> Scenario:
    return load(raw(**{**COMMON, **CASES[case], **more}))


def disturb() -> None:
    torch.rand(3)
    np.random.rand(5)
    random.random()


@pytest.mark.sampled(1)
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


@pytest.mark.sampled(1)
@BOTH
def test_what_is_drawn_depends_on_the_seed_and_not_on_batching_or_evaluations(case: str) -> None:
    scenario = scenario_of(case)
    weights = run(scenario).weights
    for other in (run(scenario, execution=EAGER), run(scenario_of(case, evaluate={"every": "3 rounds"}))):
        assert all(torch.allclose(tensor, other.weights[name], atol=1e-12) for name, tensor in weights.items())
    assert any(not tensor.equal(run(scenario, seed=1).weights[name]) for name, tensor in weights.items())


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES if is_thorough() else [*PAIRS[:3], "a coroutine that draws"])
@pytest.mark.usefixtures("warm_workers")
def test_two_workers_draw_what_one_draws(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vflsim: Callable[..., Ended]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = raw(**{**COMMON, **CASES[case]}, seeds=[0, 1])
    said["protocols"] = dict.fromkeys(("it", "again"), said["protocols"]["it"])
    with Path("own.yaml").open("w") as file:
        YAML().dump(said, file)
    for workers in "12":
        ended = vflsim("run", "own.yaml", "--workers", workers, "--out", workers)
        assert ended.status == 0, ended.err
    one, two = (
        {path.relative_to(of): path.read_bytes() for path in Path(of).rglob("*.*") if path.suffix in WHAT_RUNS_LEAVE}
        for of in "12"
    )
    assert one == two
    weights = [path for path in one if path.suffix == ".safetensors"]
    assert len(weights) == 4
    first, *_, other = (one[path] for path in sorted(weights))
    assert first != other


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", [case for case in PAIRS if "asynchronous" not in case])
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

    counting = model(counts=True)
    with pytest.raises(ScenarioError, match=r"client-1 changed Dropping\.applied in the model embedding") as refused:
        refuse_broken(counting, read_and_check(counting))
    assert "register_buffer" in str(refused.value)
    scenario = model(buffer=True)
    assert_interruptions_change_no_byte(scenario, tmp_path)
