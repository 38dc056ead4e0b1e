"""A compute model by path sees FLOPs, rows and units; closed forms and the vectorised path agree, or refuse it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closed_forms_of import found, reason
from kept_runs import assert_interruptions_change_no_byte
from own_mistakes import assert_refused_with_file_line_and_remedy, entry
from thorough import is_thorough
from tiny_worlds import RANDOM_TIMING, data_of, events, rounds, run, tiny

from vflsim.errors import RunError
from vflsim.simulation.vectorised.eligibility import obstacles
from vflsim.simulation.vectorised.run import run_vectorised

JITTER = {"kind": "lognormal", "median": 1, "sigma": 0.3}


def own(path: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "module", "path": f"own_computes:{path}", **keys}


def timed(compute: dict[str, Any] | str, server: dict[str, Any] | str | None = None) -> dict[str, Any]:
    timing = {**RANDOM_TIMING}
    timing["clients"] = [*RANDOM_TIMING["clients"], {"select": "all", "compute": compute}]
    if server is not None:
        timing["server"] = {**RANDOM_TIMING["server"], "compute": server}
    return timing


PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any] | str]] = {
    "flops": (own("Roofline", rate="1 MFLOPS"), {"kind": "flops", "rate": "1 MFLOPS"}),
    "jitter": (
        own("Jittered", rate="1 MFLOPS", jitter=JITTER),
        {"kind": "flops", "rate": "1 MFLOPS", "jitter": JITTER},
    ),
    "units": (own("Units", each="2 ms"), "2 ms"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("kind", ["asynchronous", "fedvs"])
def test_it_takes_as_long_as_the_built_in_model_of_the_same_formula(name: str, kind: str) -> None:
    protocol = {"kind": kind, **({"K": 1, "T": 1} if kind == "fedvs" else {})}
    said = {"models__server": {"kind": "linear"}, "stop": {"rounds": 5}}
    mine, built_in = (
        run(tiny({"it": protocol}, timing=timed(compute, compute), **said), "it", timing_only=True)
        for compute in PAIRS[name]
    )
    times = (
        ["start_s", "end_s"] if "start_s" in events(mine) else [each for each in events(mine) if each.endswith("_s")]
    )
    np.testing.assert_allclose(events(mine)[times], events(built_in)[times], rtol=1e-12)


def test_an_operation_has_rows() -> None:
    """A row takes 1 ms: a batch of 20 takes 20 ms, the last one of an epoch 10 ms."""
    scenario = tiny("synchronous", timing=timed(own("Roofline", rate="1000 TFLOPS", a_row="1 ms")))
    taken = events(run(scenario), "compute.embed")
    seconds = (taken["end_s"] - taken["start_s"]).round(9)
    assert set(seconds) == {0.02, 0.01}


WORLDS = {
    "jittered": own("Jittered", rate="1 MFLOPS", jitter=JITTER, a_row="1 us"),
    "units": own("Units", each="2 ms"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("kind", ["synchronous", "t_synchronous"])
def test_the_vectorised_path_gives_the_same_rounds(name: str, kind: str) -> None:
    protocol = {"it": {"kind": kind, **({"t": 2, "cancel": True} if kind == "t_synchronous" else {})}}
    timing = {**timed(WORLDS[name], WORLDS[name]), "network": "dedicated"}
    scenario = tiny(protocol, timing=timing, record="rounds", stop={"rounds": 40})
    assert not obstacles(scenario, "it")
    plain, vectorised = run(scenario, "it", timing_only=True), run_vectorised(scenario, "it", 0, data_of(scenario))
    assert rounds(vectorised).equals(rounds(plain))


@pytest.mark.slow
@pytest.mark.parametrize("compute", [*WORLDS.values(), own("Roofline", rate="1 MFLOPS", a_row="9 us", begin="1 ms")])
def test_the_closed_form_is_the_mean_of_the_simulation(compute: dict[str, Any]) -> None:
    timing = {**timed(compute, compute), "network": "dedicated"}
    data = {"name": "digits", "train_rows": 80, "test_fraction": 0.1}
    stop = {"rounds": 4000 if is_thorough() else 1200}
    world = tiny({"it": {"kind": "synchronous"}}, timing=timing, stop=stop, data=data, evaluate={})
    known = found(world).law
    seconds = rounds(run(world, "it", timing_only=True))["end_s"].diff().iloc[10:]
    error = seconds.std() / np.sqrt(len(seconds))
    assert abs(seconds.mean() - known.expectation()) < 5 * error


WAITING = own("Waiting", rate="1 MFLOPS", wait={"kind": "exponential", "mean": "2 ms"})


def test_closed_forms_and_the_vectorised_path_refuse_a_draw_that_is_no_factor() -> None:
    scenario = tiny({"it": {"kind": "synchronous"}}, timing={**timed(WAITING), "network": "dedicated"}, record="rounds")
    (problem,) = obstacles(scenario, "it")
    assert problem.loc == ("timing", "clients", "compute")
    assert "waiting) turns a draw into time in a way of its own" in problem.what
    assert "waiting) turns a draw into time in its own way" in reason(scenario)


def test_a_constant_draw_is_an_obstacle_to_arrays_alone() -> None:
    timing = {**timed(own("Roofline", rate="1 MFLOPS", begin="1 ms")), "network": "dedicated"}
    scenario = tiny({"it": {"kind": "synchronous"}}, timing=timing, record="rounds")
    (problem,) = obstacles(scenario, "it")
    assert "proportional = True" in problem.remedy
    assert found(scenario)


def test_closed_forms_of_coded_rounds_count_rows() -> None:
    """A row takes 1 ms of a client's step, and nothing of shares and coded embeddings."""
    jittered = own("Jittered", rate="1000 TFLOPS", jitter=JITTER, a_row="1 ms")
    world = tiny({"it": {"kind": "fedvs", "K": 1, "T": 1}}, timing=timed(jittered), models__server={"kind": "linear"},
                 stop={"rounds": 200}, evaluate={"every": "200 rounds"})  # fmt: skip
    seconds, known = rounds(run(world, "it", timing_only=True))["end_s"].diff().iloc[10:], found(world).mean
    error = 5 * seconds.std() / np.sqrt(len(seconds))
    assert known.low - error < seconds.mean() < known.high + error
    assert known.high - known.low + 2 * error < 0.02


def test_an_interrupted_run_writes_the_bytes_of_one_that_was_not(tmp_path: Path) -> None:
    scenario = tiny("asynchronous", timing=timed(WAITING), stop={"rounds": 20})
    assert_interruptions_change_no_byte(scenario, tmp_path)


WRONG = {
    "Negative": (r"Negative\.seconds is -1\.0 for OperationCost(.|\n)*at least 0", "seconds"),
    "Text": (r"Text\.seconds is '1 ms' for OperationCost(.|\n)*a number", "seconds"),
    "Drawing": (
        r"Drawing\.seconds draws from Python's global generator(.|\n)*let `law` say what is random",
        "seconds",
    ),
    "Affine, each_draw: {kind: exponential, mean: 1 s}": (
        r"Affine\.seconds is .* and 2 for a draw of 1(.|\n)*proportional = False",
        "proportional",
    ),
    "Divides": (r"Divides fails: ZeroDivisionError(.|\n)*own_computes\.py:\d+, seconds", "mend it"),
    "NoLaw": (r"NoLaw\.law returned a float(.|\n)*a Delay", "law"),
    "Units, every: 2 ms": (r"there is no key 'every'", "each"),
    "OperationCost": (r"OperationCost is a class but no Delay or ComputeModel(.|\n)*derive it from", "Delay"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_told_with_file_line_and_remedy(name: str, tmp_path: Path) -> None:
    section = ["timing:", "  server:", f"    compute: {entry('own_computes', name, 'each: 1 ms')}"]
    assert_refused_with_file_line_and_remedy(tmp_path, section, "timing.server.compute", WRONG[name])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "LateFailure",
            r"client-1 at 0 s: the compute model LateFailure fails for OperationCost\(kind='embed', rows=20(.|\n)*Key",
        ),
        (
            "LateNegative",
            r"LateNegative\.seconds is -1\.0 for OperationCost\(kind='embed', rows=20(.|\n)*finite and at least 0",
        ),
    ],
)
def test_what_goes_wrong_later_ends_the_run_and_names_the_operation(name: str, words: str) -> None:
    with pytest.raises(RunError, match=words):
        run(tiny("synchronous", timing=timed(own(name, each="1 ms"))))
