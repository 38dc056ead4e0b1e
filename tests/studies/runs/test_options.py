"""What users say about how a study is carried out, and what of it is refused."""

from typing import Any

import pytest

from vflsim.errors import ScenarioError
from vflsim.vocabulary import execution_options as module
from vflsim.vocabulary.execution_options import DEFAULT_OPTIONS, Cluster, Execution, RunOptions, remark


@pytest.fixture(params=[False, True], ids=["no cuda", "cuda"])
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(module, "cuda_available", lambda: request.param)
    return request.param


def test_nothing_said_is_one_worker_with_checkpoints_on_the_best_device(cuda: bool) -> None:
    expected = RunOptions(
        workers=1, resume=False, checkpoint_every=60.0, execution=Execution(False, DEFAULT_OPTIONS.execution.device, 1)
    )
    if cuda:
        expected = RunOptions(execution=Execution(device="cuda"))
    assert RunOptions.of() == expected


def test_every_option_given_is_kept() -> None:
    said = RunOptions.of(
        workers=3, resume=True, checkpoint_every="2 min", eager=True, device="cpu", threads=4, tf32=True
    )
    assert said == RunOptions(3, True, 120.0, Execution(eager=True, device="cpu", threads=4, tf32=True))


@pytest.mark.parametrize(
    ("said", "seconds"), [("off", None), (" OFF", None), (None, None), (0.5, 0.5), ("90", 90.0), ("1 h", 3600.0)]
)
def test_checkpoints_are_a_time_apart_or_off(said: str | float | None, seconds: float | None) -> None:
    assert RunOptions.of(checkpoint_every=said).checkpoint_every == seconds


def test_what_checkpoint_every_may_be_is_said() -> None:
    with pytest.raises(ScenarioError, match=r"--checkpoint-every banana: .*; a time such as 60 s or 5 min, or off"):
        RunOptions.of(checkpoint_every="banana")


@pytest.mark.parametrize(("said", "runs"), [("auto", "auto"), ("off", None), (None, None), (8, 8), ("8", 8)])
def test_runs_go_together_as_memory_allows_up_to_a_number_or_not(said: str | int | None, runs: object) -> None:
    assert RunOptions.of(together=said).together == runs


@pytest.mark.parametrize("said", ["0", "many", 1.5])
def test_what_together_may_be_is_said(said: str) -> None:
    with pytest.raises(ScenarioError, match=rf"--together {said}: .*; auto or off"):
        RunOptions.of(together=said)


def test_cuda_that_is_not_there_is_the_cpu_and_that_is_said(cuda: bool) -> None:
    made = RunOptions.of(device="cuda")
    assert made.execution.device == ("cuda" if cuda else "cpu")
    assert remark("cuda", made) == ("" if cuda else "no CUDA device here: running on the CPU")
    assert remark("auto", RunOptions.of()) == remark("cpu", RunOptions.of(device="cpu")) == ""
    assert RunOptions.of(device="cpu").execution.device == "cpu"


def test_all_that_is_wrong_is_one_message() -> None:
    with pytest.raises(ScenarioError) as caught:
        RunOptions.of(workers=0, threads=1.5, checkpoint_every="3 MB", device="tpu")  # type: ignore[arg-type]
    *lines, _ = str(caught.value).splitlines()
    starts = ("--workers 0: ", "--checkpoint-every 3 MB: ", "--device tpu: ", "--threads 1.5: ")
    for line, start in zip(lines, starts, strict=True):
        assert line.strip().startswith(start)
        assert "allowed: " in line


def test_a_run_on_ray_takes_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    options = RunOptions.of(engine="ray", address="auto", num_cpus=2, num_gpus=0.5, max_retries=0, device="cuda")
    assert options.cluster == Cluster("auto", 2.0, 0.5, 0)
    assert options.execution.device == "cuda"  # which this machine need not have
    assert RunOptions.of(engine="ray").cluster == Cluster()
    assert RunOptions.of().cluster is None


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"engine": "ray"}, "--engine ray: Ray is not installed; install it: pip install 'vflsim[ray]'"),
        ({"engine": "ray", "workers": 2}, "--workers 2: Ray starts the workers"),
        ({"engine": "ray", "num_cpus": -1}, "--num-cpus -1: "),
        ({"engine": "ray", "max_retries": 0.5}, "--max-retries 0.5: "),
        ({"engine": "slurm"}, "--engine slurm: unknown engine; allowed: processes, ray"),
        ({"address": "auto"}, "add --engine ray, or leave them out"),
    ],
)
def test_what_ray_cannot_do_is_refused_at_once(
    given: dict[str, Any], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ScenarioError) as caught:
        RunOptions.of(**given)
    assert what in str(caught.value)
