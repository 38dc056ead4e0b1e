"""``vflsim run`` with several workers, resumed, interrupted and killed: what it says, and what it leaves."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import Ended

from vflsim.learning.programs.lockstep import SumProgram
from vflsim.results.store.write import write_run

SCENARIO = """\
name: tiny
data: {name: digits, train_rows: 100, test_fraction: 0.2}
partition: {clients: 4, by: columns}
models:
  client: {kind: linear, embedding: 6}
  aggregate: mean
  server: {kind: mlp, hidden: [8]}
training:
  batch: 20
  client_optimizer: {kind: sgd, lr: 0.2}
  server_optimizer: {kind: sgd, lr: 0.1}
timing: {server: {compute: 1 ms}, clients: {compute: 2 ms}}
protocols:
  wait: {kind: synchronous}
  async: {kind: asynchronous}
stop: {rounds: 10, time: 60 s}
evaluate: {every: 5 rounds}
seeds: [0, 1]
"""
SETTINGS = "protocols.async.stop={rounds: null}", "stop.time=30 s", "evaluate.every=1 round"
LONG = tuple(word for setting in SETTINGS for word in ("--set", setting))
"""Runs of ``async`` that are timed in seconds, and trained in minutes."""
DIVERGING = "protocols.wait.training={server_optimizer: {kind: sgd, lr: 1e+30}}"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(SCENARIO)


def files() -> dict[str, bytes]:
    return {path.as_posix(): path.read_bytes() for path in sorted(Path("results").rglob("*")) if path.is_file()}


def shown() -> set[str]:
    """Names of the files that are not hidden: also while others come and go."""
    return {path.as_posix() for path in Path("results").rglob("*") if "/." not in path.as_posix() and path.is_file()}


def group(number: int) -> list[int]:
    """Processes of a group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == number and state not in "ZX":
            found.append(int(path.parent.name))
    return found


@contextmanager
def under_way(*argv: str, lines: int) -> Iterator[subprocess.Popen[str]]:
    """A study in a process group of its own that has said so of so many runs; nothing of it is left afterwards."""
    command = [sys.executable, "-u", "-m", "vflsim", "run", "tiny.yaml", *argv]
    paths = [str(Path(__file__).parents[1] / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert process.stdout is not None
    try:
        while lines:
            said = process.stdout.readline()
            assert said
            lines -= bool(re.match(r"\d/\d ", said))
        yield process
        for _ in range(600):
            if not group(process.pid):
                break
            time.sleep(0.1)
        assert group(process.pid) == []
    finally:
        if group(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes")
def test_ctrl_c_ends_all_workers_and_a_second_study_in_the_same_folder_never_begins(
    vflsim: Callable[..., Ended],
) -> None:
    with under_way("--workers", "2", "--checkpoint-every", "100 ms", *LONG, lines=2) as process:
        while len({path.parent for path in Path("results").glob("tiny/async/.seed-*.checkpoint/*.json")}) < 2:
            assert process.poll() is None
            time.sleep(0.1)
        before = shown()
        second = vflsim("run", "tiny.yaml", *LONG)
        assert second.status == 2
        assert "/4 " not in second.out
        assert f"results/tiny: is in use by another process, number {process.pid}\n" in second.err
        assert shown() == before
        assert vflsim("compare", "results/tiny").status == 0
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr is not None
        err = process.stderr.read()
        assert process.wait(60) == 130
        assert err == (
            "interrupted: 2 of 4 runs had ended and are kept in results/tiny\n"
            "  see them with: vflsim compare results/tiny\n"
            "  resume with: vflsim run tiny.yaml --workers 2 --checkpoint-every '100 ms' "
            + "".join(f"--set '{setting}' " for setting in SETTINGS)
            + "--resume\n"
        )
    kept = {name.rpartition("/")[0].removeprefix("results/tiny") for name in files()}
    of_runs_that_took_long = {"/wait/.seed-0.checkpoint", "/wait/.seed-1.checkpoint"}  # on a busy machine
    assert kept - of_runs_that_took_long == {
        "", "/wait/seed-0", "/wait/seed-1", "/async/.seed-0.checkpoint", "/async/.seed-1.checkpoint"
    }  # fmt: skip


def test_ctrl_c_in_the_first_run_keeps_a_checkpoint_from_which_the_results_are_the_same(
    vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert vflsim("run", "tiny.yaml", "--out", "whole").status == 0
    assert vflsim("run", "tiny.yaml", "--timing-only", "--out", "results/tiny").status == 0
    play = SumProgram.play

    def interrupted(program: SumProgram) -> None:
        if program.runs[0].cursor.round == 3:
            signal.raise_signal(signal.SIGINT)
        play(program)

    with monkeypatch.context() as patch:
        patch.setattr(SumProgram, "play", interrupted)
        ended = vflsim("run", "tiny.yaml")
    assert ended.status == 130
    assert "(training or timing alone (--timing-only))" in ended.out
    first, second = ended.err.splitlines()
    assert first == "interrupted before the first run had ended: a checkpoint is kept in results/tiny"
    assert second == "  resume with: vflsim run tiny.yaml --no-report --resume"
    checkpoints = {f".seed-{seed}.checkpoint" for seed in (0, 1)}
    assert {path.name for path in Path("results/tiny/wait").iterdir()} == checkpoints
    resumed = vflsim("run", "tiny.yaml", "--resume")
    assert resumed.status == 0
    assert "no run has finished yet" in resumed.out
    for path in Path("whole").rglob("*.parquet"):
        assert Path("results/tiny", path.relative_to("whole")).read_bytes() == path.read_bytes()
    assert {path.name for path in Path("results/tiny").rglob(".*")} == checkpoints


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes")
def test_sigterm_to_the_process_group_keeps_checkpoints_and_says_how_to_resume() -> None:
    argv = ("--workers", "2", "--checkpoint-every", "100 ms", "--set", "protocols.wait=null", *LONG)
    with under_way(*argv, lines=0) as process:
        while len({path.parent for path in Path("results").glob("tiny/async/.seed-*.checkpoint/*.json")}) < 2:
            assert process.poll() is None
            time.sleep(0.1)
        for _ in range(2):  # as a batch system does: to the process, and to its group
            os.killpg(process.pid, signal.SIGTERM)
        assert process.stderr is not None
        err = process.stderr.read()
        assert process.wait(60) == 143
    assert err.startswith("interrupted before the first run had ended: a checkpoint is kept in results/tiny\n")
    assert err.endswith(" --resume\n")
    assert {path.name for path in Path("results/tiny/async").iterdir()} == {".seed-0.checkpoint", ".seed-1.checkpoint"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("earlier", ["nothing", "another scenario"])
def test_ctrl_c_just_after_a_run_is_in_its_place_says_that_it_is_there(
    earlier: str, vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ("run", "tiny.yaml", "--timing-only")
    if earlier != "nothing":
        assert vflsim(*argv, "--seeds", "[5]").status == 0

    def interrupted(*args: object) -> None:
        write_run(*args)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("vflsim.studies.runs.spec.write_run", interrupted)
        ended = vflsim(*argv)
    assert ended.status == 130
    assert ended.err.startswith("interrupted: 1 of 4 runs had ended and are kept in results/tiny-timing\n")
    assert Path("results/tiny-timing/wait/seed-0/run.json").exists()
    assert vflsim("compare", "results/tiny-timing").status == 0
    verified = vflsim("verify", "results/tiny-timing")
    missing = ["async/seed-0", "wait/seed-1", "async/seed-1"]
    assert verified.out.splitlines() == [f"{run} is missing: a run of this scenario" for run in missing]
    resumed = vflsim(*argv, "--resume")
    assert resumed.status == 0
    assert vflsim("verify", "results/tiny-timing").status == 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes")
def test_workers_end_with_the_process_that_started_them_and_its_folder_is_free(vflsim: Callable[..., Ended]) -> None:
    place = Path("stuck").absolute()
    model = f"models.client={{kind: module, path: 'deadly_models:Stuck', embedding: 6, arguments: {{folder: {place}}}}}"
    with under_way("--workers", "2", "--set", model, lines=0) as process:
        while not Path("results/tiny/wait/.seed-0.log").exists():  # it has been checked, which takes a step of training
            assert process.poll() is None
            time.sleep(0.05)
        place.mkdir()
        while len(list(place.iterdir())) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.wait()
    ended = vflsim("run", "tiny.yaml", "--timing-only", "--out", "results/tiny", "--seeds", "[0]")
    assert ended.status == 0
    assert "  kept in " in ended.out


@pytest.mark.usefixtures("warm_workers")
def test_runs_that_fail_in_workers_are_shown_with_what_they_said(vflsim: Callable[..., Ended], tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    model = f"models.client={{kind: module, path: 'deadly_models:Deadly', embedding: 6, arguments: {{flag: {flag}}}}}"
    ended = vflsim("run", "tiny.yaml", "--workers", "2", "--set", model, "--seeds", "[7]")
    assert ended.status == 1
    name = re.search(r"^\d/2 (\w+) +seed 7  failed: its worker process, in round 0 at 0 s$", ended.out, re.MULTILINE)
    assert name is not None
    assert re.search(r"^\d/2 \w+ +seed 7 .* stop: rounds$", ended.out, re.MULTILINE)
    head, log, last, again = ended.err.splitlines()
    assert head.startswith(f"error: {name[1]}, seed 7: its worker process, in round 0 at 0 s: was killed by SIGKILL: ")
    assert log == f"  its log is results/tiny/{name[1]}/.seed-7.log, and ends:"
    assert last == "    these were my last words"
    assert again.startswith("rerun failed runs with: vflsim run tiny.yaml --workers 2 --set ")
    assert again.endswith(" --seeds '[7]' --no-report --resume")


# --- resume -----------------------------------------------------------------------------------------------------------


def test_resume_keeps_what_has_finished_and_what_would_diverge_again(vflsim: Callable[..., Ended]) -> None:
    assert vflsim("run", "tiny.yaml", "--set", DIVERGING).status == 1
    before = files()
    ended = vflsim("run", "tiny.yaml", "--set", DIVERGING, "--resume")
    assert (ended.status, ended.err) == (1, "")  # as of the first run; there is nothing to run again
    assert "Diverged (target not reached); left out of all other means: wait, seed 0: " in ended.out
    assert "\n4 runs, all kept from before; " in ended.out
    assert re.findall(r"^(\d/4) (\w+) +seed (\d) ", ended.out, re.MULTILINE) == []
    assert "warning" not in ended.out
    after = files()
    assert {name for name in before if before[name] != after[name]} <= {"results/tiny/manifest.json"}


def test_a_resumed_study_says_how_many_runs_were_kept_and_what_the_others_took(vflsim: Callable[..., Ended]) -> None:
    argv = ("run", "tiny.yaml", "--timing-only", "--out", "out")
    assert re.search(r"^4 runs in [\d.]+ s; files in out$", vflsim(*argv).out, re.MULTILINE)
    shutil.rmtree("out/async/seed-1")
    ended = vflsim(*argv, "--resume")
    assert re.search(r"^4 runs: 3 kept from before, 1 run in [\d.]+ s; files in out$", ended.out, re.MULTILINE)
    assert re.findall(r"^  warning: (.*)$", ended.out, re.MULTILINE) == [
        "async/seed-1 is run again: run.json is missing"
    ]
    assert "\n4 runs, all kept from before; files in out\n" in vflsim(*argv, "--resume").out


def test_resume_where_there_is_nothing_runs_everything(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("run", "tiny.yaml", "--resume", "--timing-only")
    assert ended.status == 0
    assert "/results/tiny-timing: no run has finished yet\n" in ended.out
    again = vflsim("run", "tiny.yaml", "--resume", "--timing-only")
    assert again.status == 0
    assert "4 of 4 runs have finished and stay" in again.out
    assert not re.search("^./4 ", again.out, re.MULTILINE)


def test_resume_says_how_finished_runs_were_made_otherwise(vflsim: Callable[..., Ended]) -> None:
    assert vflsim("run", "tiny.yaml", "--threads", "2").status == 0
    ended = vflsim("run", "tiny.yaml", "--resume", "--eager")
    assert re.findall(r"^  warning: (.*)$", ended.out, re.MULTILINE) == [
        "4 of 4 with threads 2 (now 1)",
        "4 of 4 with learning plane batched (now eager)",
    ]


def test_resume_of_another_scenario_is_refused_with_every_change(vflsim: Callable[..., Ended]) -> None:
    vflsim("run", "tiny.yaml", "--timing-only", "--out", "results/there")
    before = files()
    change = ("--set", "training.batch=10", "--set", "protocols.async=null")
    for more, changes in (
        (("--timing-only", *change), ["training.batch: 20 → 10", "protocols.async: {kind: asynchronous} → absent"]),
        ((), ["training or timing alone (--timing-only)"]),
    ):
        ended = vflsim("run", "tiny.yaml", "--resume", "--out", "results/there", *more)
        assert ended.status == 2
        assert "/4 " not in ended.out
        head, *rest = ended.err.splitlines()
        assert head == "error: results/there: holds results of another scenario, which cannot be resumed"
        assert [line.strip() for line in rest[:-2]] == changes
        assert rest[-1].startswith("  remedy: change it back, or choose another --out")
        assert files() == before


def test_a_resumed_sweep_that_keeps_a_diverged_run_exits_like_the_first(vflsim: Callable[..., Ended]) -> None:
    argv = ("sweep", "tiny.yaml", "--over", "training.batch=10,20", "--seeds", "[0]", "--set", DIVERGING)
    for more in ((), ("--resume",)):
        ended = vflsim(*argv, *more)
        assert ended.status == 1
        assert "rerun failed runs" not in ended.err


def test_a_sweep_resumes_too_and_refuses_other_values(vflsim: Callable[..., Ended]) -> None:
    argv = ("sweep", "tiny.yaml", "--timing-only", "--out", "results/sweep", "--over")
    assert vflsim(*argv, "training.batch=10,20").status == 0
    before = files()
    ended = vflsim(*argv, "training.batch=10,20", "--resume")
    assert ended.status == 0
    assert files() == before
    refused = vflsim(*argv, "training.batch=10,25", "--resume")
    assert refused.status == 2
    assert "points.1.values: [20] → [25]" in refused.err
    refused = vflsim(*argv, "training.batch=10,20", "--resume", "--seeds", "[3]")
    assert refused.status == 2
    assert "sweep/batch-10: holds results of another scenario" in refused.err
    assert "seeds: [0, 1] → [3]" in refused.err
    assert files() == before


# --- options ----------------------------------------------------------------------------------------------------------


def test_options_reach_the_runs(vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    from vflsim.results import Results

    monkeypatch.setattr("vflsim.vocabulary.execution_options.cuda_available", lambda: False)
    ended = vflsim("run", "tiny.yaml", "--eager", "--threads", "2", "--device", "cuda", "--checkpoint-every", "off")
    assert ended.status == 0
    assert ended.out.splitlines()[0] == "no CUDA device here: running on the CPU"
    for run in Results.open("results/tiny").runs:
        assert (run.info.learning_plane, run.info.threads, run.info.device) == ("eager", 2, "cpu")


@pytest.mark.parametrize("command", [("run",), ("sweep", "--over", "training.batch=10")])
def test_bad_options_are_one_message_and_nothing_runs(command: tuple[str, ...], vflsim: Callable[..., Ended]) -> None:
    ended = vflsim(command[0], "tiny.yaml", *command[1:], "--workers", "0", "--threads", "0", "--checkpoint-every", "x")
    assert (ended.status, ended.out) == (2, "")
    for option in ("--workers 0: ", "--threads 0: ", "--checkpoint-every x: "):
        assert ended.err.count(option) == 1
    assert ended.err.count("error: ") == 1
    assert "Traceback" not in ended.err
    assert not Path("results").exists()
