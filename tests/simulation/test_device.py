"""On a device, every kind and every program learn what they learn on the CPU, and the same bytes twice.

Run: pytest --device cuda (where there is no GPU, --device cpu rehearses the tests).
"""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from protocols_by_kind import KINDS, PARTS
from tiny_worlds import data_of, tiny

from vflsim.simulation.programs import TrainedRun, timed, trained
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.vocabulary.execution_options import Execution

pytestmark = pytest.mark.device
Device = Literal["cpu", "cuda"]
TOLERANCE = 1e-12
"""Largest difference of weights in float64; an H200's were within 3e-15 of the CPU's."""
END: dict[str, Any] = {"stop": {"rounds": 20}, "evaluate": {"every": "10 rounds"}}
SEEDS = 0, 1, 2
"""Seeds that train side by side."""
PROGRAMS = ("synchronous", "pyvertical", "asynchronous", "t-synchronous")
MODELS: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear", "embedding": 6},
    "polynomial": {"kind": "polynomial", "degree": 2, "embedding": 6},
    "mlp": {"kind": "mlp", "hidden": [5], "embedding": 6},
}


@pytest.fixture(scope="module")
def device(request: pytest.FixtureRequest) -> Device:
    chosen: Device = request.config.getoption("--device")
    if chosen == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU: --device cpu rehearses these tests")
    return chosen


def compare(on_cpu: Outcome, once: Outcome, again: Outcome) -> None:
    for outcome in (on_cpu, once, again):
        assert outcome.error is None
    assert on_cpu.weights.keys() == once.weights.keys() == again.weights.keys()
    for name, weights in on_cpu.weights.items():
        assert torch.equal(once.weights[name].cpu(), again.weights[name].cpu()), name
        torch.testing.assert_close(
            once.weights[name].cpu(), weights, rtol=0, atol=TOLERANCE, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("eager", [False, True], ids=["batched", "eager"])
@pytest.mark.parametrize("name", [*KINDS, *PARTS])
def test_every_kind_learns_what_it_learns_on_the_cpu(name: str, eager: bool, device: Device) -> None:
    scenario = tiny({"it": {**KINDS, **PARTS}[name]}, **END)
    data = data_of(scenario, "it")

    def run(where: Device) -> Outcome:
        return run_protocol(scenario, "it", 0, data, execution=Execution(eager, device=where))

    compare(run("cpu"), run(device), run(device))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_learns_side_by_side_what_it_learns_on_the_cpu(name: str, model: str, device: Device) -> None:
    scenario = tiny(
        {"it": KINDS[name]}, record="rounds", models__client=MODELS[model], timing__network="dedicated", **END
    )
    data = data_of(scenario, "it")

    def run(where: Device) -> dict[int, Any]:
        how = Execution(device=where)
        return dict(trained([TrainedRun(timed(scenario, "it", seed, data, how, by_arrays=True)) for seed in SEEDS]))

    on_cpu, once, again = run("cpu"), run(device), run(device)
    for place in range(len(SEEDS)):
        compare(on_cpu[place], once[place], again[place])
