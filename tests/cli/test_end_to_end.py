"""The command line, end to end: what it prints, writes and returns, in a terminal and elsewhere."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended
from tiny_worlds import raw

from vflsim.cli import main
from vflsim.kinds import TABLES
from vflsim.learning.learners.server import ServerLearner
from vflsim.plotting import PLOTS
from vflsim.scenario import load
from vflsim.world.record import Recorder

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
timing:
  server: {compute: 1 ms, link: {up: 100 Mbps, down: 100 Mbps}}
  clients:
    - {select: all, compute: 2 ms, link: {up: 50 Mbps, down: 50 Mbps}}
    - {select: 3..N, upload_delay: {kind: exponential, mean: 20*i ms}}
protocols:
  wait: {kind: synchronous}
  async: {kind: asynchronous}
stop: {rounds: 10, time: 60 s}
evaluate: {every: 5 rounds}
seeds: [0, 1]
"""
RUNS = ("wait/seed-0", "async/seed-0", "wait/seed-1", "async/seed-1")
TOGETHER = ("wait/seed-0", "wait/seed-1", "async/seed-0", "async/seed-1")
"""The runs as they end: seeds train side by side."""
DIVERGING = "protocols.wait.training={server_optimizer: {kind: sgd, lr: 1e+30}}"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(SCENARIO)


@pytest.fixture(scope="session")
def tiny_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from vflsim.studies.study import run_study

    folder = tmp_path_factory.mktemp("tiny") / "results"
    run_study(load(SCENARIO), folder)
    return folder


@pytest.fixture
def finished(tiny_results: Path) -> dict[str, bytes]:
    """The files of results that ``vflsim run tiny.yaml`` finds."""
    shutil.copytree(tiny_results, "results/tiny")
    return files("results/tiny")


def files(folder: str | Path) -> dict[str, bytes]:
    found = {path.relative_to(folder): path for path in sorted(Path(folder).rglob("*")) if path.is_file()}
    return {name.as_posix(): path.read_bytes() for name, path in found.items() if "earlier" not in name.parts}


def earlier() -> Path:
    (place,) = Path("results/tiny/earlier").iterdir()
    return place


def in_terminal(*argv: str, columns: int = 80) -> str:
    """What a terminal of this width shows at the end, control sequences removed."""
    pty = pytest.importorskip("pty")
    import fcntl
    import struct
    import termios

    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "VFLSIM_DATA": ""}
    environment.pop("COLUMNS", None)
    command = [sys.executable, "-m", "vflsim", *argv]
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment)
    os.close(its)
    shown = b""
    while True:
        try:
            more = os.read(mine, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not more:
            break
        shown += more
    os.close(mine)
    process.wait()
    return shown.decode()


DESCRIBED = [
    "data: digits, 100 train, 359 test rows, 64 features at 4 clients",
    "task: multiclass, 10 classes; the rarest class, 0, has 10 of 100 training rows",
    "batch: 20 of 100 training rows, 5 an epoch",
]
"""What check and run say of the data."""


def lines(shown: str) -> list[str]:
    """Lines as they stand at the end: colours removed, overwritten text gone."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    return [line.rsplit("\r", 1)[-1] for line in plain.replace("\r\n", "\n").split("\n")]


# --- run --------------------------------------------------------------------------------------------------------------


def test_run_says_what_each_run_did_and_ends_with_the_comparison_and_where_the_files_are(
    vflsim: Callable[..., Ended],
) -> None:
    ended = vflsim("run", "tiny.yaml")
    assert (ended.status, ended.err) == (0, "")
    assert not {"\x1b", "\r"} & {*ended.out}  # nobody sees a terminal
    assert ended.out.splitlines()[:3] == DESCRIBED
    assert [line.split()[:4] for line in ended.out.splitlines()[3:7]] == [
        [f"{number}/4", run.split("/")[0], "seed", run[-1]] for number, run in enumerate(TOGETHER, start=1)
    ]
    assert re.search(r"^1/4 wait   seed 0 .* 10 rounds  accuracy 0\.\d{4}  stop: rounds$", ended.out, re.MULTILINE)
    assert re.search(r"^protocol +seeds +ended by +final accuracy  ", ended.out, re.MULTILINE)
    assert "files in results/tiny\nnext: vflsim plot results/tiny\n" in ended.out
    assert {f"{run}/metrics.parquet" for run in RUNS} < files("results/tiny").keys()
    assert load("results/tiny/scenario.yaml") == load("tiny.yaml")


def test_run_takes_overrides_and_seeds(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim(
        "run",
        "tiny.yaml",
        "--out",
        "there",
        "--seeds",
        "3:5",
        "--set",
        "record=rounds",
        "--set",
        "protocols.async=null",
    )
    assert ended.status == 0
    assert {name for name in files("there") if name.endswith((".parquet", "run.json"))} == {
        "summary.parquet",
        "closed_forms.parquet",
        *(f"wait/seed-{seed}/{name}" for seed in (3, 4) for name in ("metrics.parquet", "rounds.parquet", "run.json")),
    }


def test_timing_only_simulates_without_training(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("run", "tiny.yaml", "--timing-only")
    assert ended.status == 0
    assert "accuracy" not in ended.out
    assert "mean round" in ended.out


def test_running_again_keeps_all_runs(vflsim: Callable[..., Ended], finished: dict[str, bytes]) -> None:
    ended = vflsim("run", "tiny.yaml")
    assert ended.status == 0
    assert "results/tiny: all 4 runs are there and stay (--anew computes them again)\n" in ended.out
    assert "4 runs, all kept from before" in ended.out
    assert files("results/tiny") == finished


def test_anew_keeps_all_runs_and_computes_them_again(vflsim: Callable[..., Ended], finished: dict[str, bytes]) -> None:
    ended = vflsim("run", "tiny.yaml", "--anew")
    assert ended.status == 0
    assert re.search(r"^  kept in .*tiny/earlier/\w+: 4 runs: .* \(--anew\)$", ended.out, re.M)
    assert files(earlier()) == finished
    after = files("results/tiny")
    timed = ("run.json", "manifest.json")  # with wall-clock times, and with the digests of those
    assert {name: after[name] for name in after if not name.endswith(timed)} == {
        name: finished[name] for name in finished if not name.endswith(timed)
    }


def test_results_of_another_scenario_are_kept_by_themselves(
    vflsim: Callable[..., Ended], finished: dict[str, bytes]
) -> None:
    ended = vflsim("run", "tiny.yaml", "--set", "stop.rounds=5")
    assert ended.status == 0
    assert "results/tiny: none of its runs is kept\n" in ended.out
    what = r"4 runs: seeds 0–1 of wait, async \(stop\.rounds: 10 → 5\)"
    (line,) = [line for line in ended.out.splitlines() if line.startswith("  kept in ")]
    assert re.fullmatch(rf"  kept in .*tiny/earlier/\w+: {what}", line)
    assert files(earlier()) == finished


# --- runs that fail ---------------------------------------------------------------------------------------------------


def test_a_run_that_diverges_does_not_stop_the_others(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("run", "tiny.yaml", "--set", DIVERGING)
    assert ended.status == 1
    assert re.search(r"^1/4 wait   seed 0  diverged: server, server_step, round \d+ at ", ended.out, re.MULTILINE)
    assert re.search(r"^3/4 async  seed 0 .* stop: rounds$", ended.out, re.MULTILINE)
    assert "0 (2 diverged)" in ended.out
    messages = re.findall(r"^error: .*", ended.err, re.MULTILINE)
    assert len(messages) == 2
    for seed, message in enumerate(messages):
        assert re.match(rf"error: wait, seed {seed}: server, server_step, round \d+ at [\d.e-]+ s: .*loss", message)
    assert "remedy: a smaller learning rate" in ended.err
    assert "rerun failed runs" not in ended.err, "it would diverge again"
    assert "Traceback" not in ended.err
    states = {run: json.loads(Path(f"results/tiny/{run}/run.json").read_text())["status"] for run in RUNS}
    assert states == dict(zip(RUNS, ["diverged", "finished"] * 2, strict=True))


def test_a_study_of_which_every_run_fails_still_ends_orderly(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("run", "tiny.yaml", "--set", DIVERGING, "--set", "protocols.async=null")
    assert ended.status == 1
    assert "0 (2 diverged)" in ended.out
    for command, status in (("compare", 0), ("plot", 0), ("verify", 2)):
        assert vflsim(command, "results/tiny").status == status
    assert vflsim("verify", "results/tiny").out.count("the run diverged") == 2


def test_an_error_in_python_code_is_blamed_on_party_round_and_time(
    vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = ServerLearner.server_step

    def failing(learner: ServerLearner, *arguments: object) -> object:
        if learner.staleness.step == 3 and learner.parts.table:
            raise LookupError("no such thing")
        return step(learner, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ServerLearner, "server_step", failing)
    ended = vflsim("run", "tiny.yaml", "--seeds", "[0]")
    assert ended.status == 1
    assert re.match(
        r"error: async, seed 0, after 3 rounds: server at [\d.]+ s: LookupError: no such thing\n"
        r"  raised in: .*test_end_to_end\.py:\d+, failing\n"
        r"rerun failed runs with: vflsim run tiny\.yaml --seeds '\[0\]' --no-report --resume\n$",
        ended.err,
    )
    assert re.search(r"^1/2 wait .*stop: rounds$", ended.out, re.MULTILINE)
    assert re.search(r"^2/2 async  seed 0  failed: server at ", ended.out, re.MULTILINE)


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


def interrupt_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the ``step``-th server step of the study."""
    take, count = Recorder.step, iter(range(step))

    def stepped(recorder: Recorder, *arguments: Any) -> None:
        if next(count, None) is None:
            raise KeyboardInterrupt
        take(recorder, *arguments)

    monkeypatch.setattr(Recorder, "step", stepped)


def test_a_study_ends_with_the_answers_under_its_deadlines(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("run", "tiny.yaml", "--seeds", "0:1", "--set", "evaluate={every: 5 rounds, deadline: 50 ms}")
    assert ended.status == 0
    assert "protocol  deadline  answer after  whole" in ended.out
    assert "protocol  deadline" not in vflsim("run", "tiny.yaml", "--seeds", "0:1").out


def test_an_interrupted_study_keeps_the_runs_that_had_ended(
    vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(23, patch)
        ended = vflsim("run", "tiny.yaml")
    assert ended.status == 130
    assert ended.err == (
        "interrupted: 2 of 4 runs had ended and are kept in results/tiny\n"
        "  see them with: vflsim compare results/tiny\n"
        "  resume with: vflsim run tiny.yaml --no-report --resume\n"
    )
    kept = files("results/tiny")
    assert {name.rpartition("/")[0] for name in kept} == {"", *TOGETHER[:2]}
    assert not any(path.name.startswith(".") for path in Path("results").rglob("*"))
    compared = vflsim("compare", "results/tiny")
    assert compared.status == 0
    verified = vflsim("verify", "results/tiny")
    assert verified.status == 2
    assert verified.out.splitlines() == [f"{run} is missing: a run of this scenario" for run in TOGETHER[2:]]
    again = vflsim("run", "tiny.yaml")
    assert again.status == 0
    for name in (f"{run}/events.parquet" for run in TOGETHER[:2]):
        assert files("results/tiny")[name] == kept[name]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("earlier", ["nothing", "the same", "another"])
def test_a_study_interrupted_in_its_first_run_leaves_everything_as_it_was(
    earlier: str, vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    if earlier != "nothing":
        vflsim("run", "tiny.yaml", *(["--set", "stop.rounds=5"] if earlier == "another" else []))
    before = files(".")
    interrupt_at(3, monkeypatch)
    ended = vflsim("run", "tiny.yaml", *(["--anew"] if earlier == "the same" else []))
    assert ended.status == 130
    left = "nothing was written" if earlier == "nothing" else "results/tiny is as it was before"
    assert ended.err == f"interrupted before the first run had ended: {left}\n"
    assert files(".") == before
    assert Path("results").exists() is (earlier != "nothing")


@pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal")
def test_an_interrupt_that_a_library_swallows_still_ends_the_study(
    vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = ServerLearner.server_step

    def swallowing(learner: ServerLearner, *arguments: object) -> object:
        if learner.staleness.step == 3:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        return step(learner, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ServerLearner, "server_step", swallowing)
    before = signal.getsignal(signal.SIGINT)
    assert vflsim("run", "tiny.yaml").status == 130
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal")
def test_a_real_interrupt_ends_with_130_and_one_message() -> None:
    command = [sys.executable, "-u", "-m", "vflsim", "run", "tiny.yaml", "--set", "protocols.async.stop={rounds: null}"]
    command += ["--set", "stop.time=1000000 s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            *_, differs, first, second = [process.stdout.readline() for _ in range(len(DESCRIBED) + 3)]
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert differs.startswith("async differs: stop.rounds")
    assert first.startswith("1/4 wait")
    assert second.startswith("2/4 wait")
    assert process.returncode == 130
    assert err.startswith("interrupted: 2 of 4 runs had ended and are kept in results/tiny\n")
    assert err.endswith("stop.time=1000000 s' --resume\n")
    assert "Traceback" not in err
    left = {name.rpartition("/")[0] for name in files("results/tiny")}
    assert left - {"async/.seed-0.checkpoint", "async/.seed-1.checkpoint"} == {"", "wait/seed-0", "wait/seed-1"}


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="closes a pipe of POSIX")
@pytest.mark.parametrize("said", [("list",), ("--help",), ("scenarios",)], ids=" ".join)
def test_output_that_nobody_reads_on_ends_quietly(said: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "vflsim", *said], stdout=write, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")


# --- check ------------------------------------------------------------------------------------------------------------


def test_check_says_what_would_run_without_training_or_writing(
    vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.optim.SGD.step", None)  # nothing may train
    ended = vflsim("check", "tiny.yaml", "--quick")
    assert (ended.status, ended.err) == (0, "")
    assert "real time" not in ended.out
    assert "tiny.yaml is valid\ntiny: 2 protocols × 2 seeds = 4 runs\n" in ended.out
    assert "\n".join(DESCRIBED) in ended.out
    header = "protocol  kind          clients  a step takes  rounds at most  bytes a round  parameters    memory"
    assert header in ended.out
    # 4 clients of 16 · 6 + 6 weights, and a server of 6 · 8 + 8 + 8 · 10 + 10
    assert re.search(r"^wait +synchronous +4 +[\d.]+ ms +10 +4\.\d+ kB +554 ", ended.out, re.MULTILINE)
    assert os.listdir() == ["tiny.yaml"]


def test_check_measures_rounds_to_predict_real_time(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("check", "tiny.yaml", "--workers", "2")
    assert (ended.status, ended.err) == (0, "")
    assert re.search(r"^wait .* [\d.]+ (s|ms)$", ended.out, re.MULTILINE)
    assert "all 4 runs take about" in " ".join(ended.out.split())
    assert "on 2 workers" in " ".join(ended.out.split())
    assert os.listdir() == ["tiny.yaml"]


def test_the_expected_step_is_the_mean_of_the_simulated_ones(vflsim: Callable[..., Ended]) -> None:
    constant = ["--set", "timing.clients=[{select: all, compute: 2 ms, upload_delay: 40 ms}]"]
    free = ["--set", "timing.server={compute: 8 ms}", "--set", "stop={time: 5.8 s}"]
    ended = vflsim("check", "tiny.yaml", *constant, *free, "--quick")
    # embed, upload, server step; then every client steps while nobody else works: 2 + 40 + 8 + 2 ms, the first without
    step = re.search(r"^wait +synchronous +4 +([\d.]+) ms +(\d+) ", ended.out, re.MULTILINE)
    assert step is not None
    assert float(step[1]) == pytest.approx(52, abs=0.1)
    assert int(step[2]) == pytest.approx(5800 / 52, abs=1)


def test_check_says_when_the_data_are_absent(vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflsim.learning.data.files.cache_folder", lambda: Path("cache"))
    monkeypatch.delenv("VFLSIM_DATA", raising=False)
    ended = vflsim("check", "tiny.yaml", "--set", "data={name: mnist}")
    assert ended.status == 2
    assert ended.out == "tiny.yaml: the scenario itself is valid, but its data cannot be used\n"
    assert "vflsim data get mnist" in ended.err


# --- results ----------------------------------------------------------------------------------------------------------


ABSENT = {"target", "epsilon", "energy", "answers"}
"""Figures of what the tiny results have not."""


@pytest.mark.usefixtures("unrendered")
def test_plot_draws_every_figure_or_those_asked_for(vflsim: Callable[..., Ended], tiny_results: Path) -> None:
    shutil.copytree(tiny_results, "results")
    everything = vflsim("plot", "results")
    assert everything.status == 0
    assert everything.out.split() == [f"results/{kind}.png" for kind in PLOTS if kind not in ABSENT]
    two = vflsim("plot", "results", "--kind", "time", "--kind", "bytes", "--out", "figures")
    assert two.out.split() == ["figures/time.png", "figures/bytes.png"]
    assert all(content.startswith(b"\x89PNG") for content in files("figures").values())


def test_plot_writes_one_figure_to_a_png_and_several_to_a_folder(
    vflsim: Callable[..., Ended], tiny_results: Path
) -> None:
    said = ("plot", str(tiny_results))
    one = vflsim(*said, "--kind", "time", "--out", "x.png")
    assert one.out.split() == ["x.png"]
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")
    for options in (("--kind", "time", "--kind", "bytes"), ()):
        several = vflsim(*said, *options, "--out", "y.png")
        assert several.status == 2
        assert "a folder; or one --kind with a file that ends in .png, .svg, .pdf" in several.err
        assert not Path("y.png").exists()


def test_plot_names_the_figures_that_there_are(vflsim: Callable[..., Ended], tiny_results: Path) -> None:
    ended = vflsim("plot", str(tiny_results), "--kind", "timelime")
    assert (ended.status, ended.out) == (2, "")
    assert "there is no figure 'timelime'" in ended.err
    assert "did you mean 'timeline'" in ended.err


def test_trace_writes_the_runs_asked_for(vflsim: Callable[..., Ended], tiny_results: Path) -> None:
    shutil.copytree(tiny_results, "results")
    assert vflsim("trace", "results").out == "results/trace.json\n"
    ended = vflsim("trace", "results", "--protocol", "wait", "--seed", "0", "--out", "one.json.gz")
    assert ended.out == "one.json.gz\n"
    trace = json.loads(gzip.decompress(Path("one.json.gz").read_bytes()))
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert names == ["wait, seed 0"]
    assert vflsim("trace", "results", "--seed", "9").status == 2


@pytest.mark.usefixtures("unrendered")
def test_compare_joins_the_results_of_several_folders(vflsim: Callable[..., Ended], tiny_results: Path) -> None:
    one = vflsim("compare", str(tiny_results))
    assert one.out.startswith("tiny (means over seeds)\nprotocol")
    shutil.copytree(tiny_results, "other")
    both = vflsim("compare", str(tiny_results), "other", "--out", "figures")
    assert both.status == 0
    assert both.out.startswith("results, other (means over seeds)\n")
    for name in ("wait (results)", "async (results)", "wait (other)", "async (other)"):
        assert f"\n{name}  " in both.out
    assert "Paired with wait (results) over common seeds" in both.out
    assert {"comparison.md", "durations.png", "speedup.png"} <= {path.name for path in Path("figures").iterdir()}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["--out", "a.png"], "--out a.png: is the name of one picture\n  allowed: a folder\n  remedy: a\n"),
        (["--out", "one"], "--out one: holds results"),
        (["one"], "one: is named twice"),
    ],
)
def test_compare_refuses_folders_that_cannot_be_meant(
    said: list[str], words: str, vflsim: Callable[..., Ended], tiny_results: Path
) -> None:
    shutil.copytree(tiny_results, "one")
    ended = vflsim("compare", "one", *said)
    assert ended.status == 2
    assert words in ended.err


def test_compare_takes_a_baseline_and_refuses_an_unknown_one(vflsim: Callable[..., Ended], tiny_results: Path) -> None:
    assert "vs async" in vflsim("compare", str(tiny_results), "--baseline", "async").out
    ended = vflsim("compare", str(tiny_results), "--baseline", "asink")
    assert ended.status == 2
    assert "there is no protocol 'asink'\n  allowed: wait, async" in ended.err


@pytest.mark.parametrize(
    ("said", "target"),
    [
        ("test_accuracy=0.01", "test_accuracy ≥ 0.01 for 5 evaluations (what a target without `for` means)"),
        ("{test_loss: 1e9, for: 2 evaluations}", "test_loss ≤ 1e+09 for 2 evaluations"),
    ],
)
def test_compare_takes_another_target(said: str, target: str, vflsim: Callable[..., Ended], tiny_results: Path) -> None:
    ended = vflsim("compare", str(tiny_results), "--target", said)
    assert ended.status == 0
    said = f"Target: {target}; reached where the first such stretch of evaluations begins."
    assert said in " ".join(ended.out.split())


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("accuracy=0.9", "there is no metric 'accuracy'"),
        ("test_auc=0.9", "'test_auc' was not evaluated in these runs"),
        ("0.9", "'0.9' is no target"),
        ("{test_accuracy: 0.9, for: 3}", "3 does not say of what"),
    ],
)
def test_compare_refuses_what_is_no_target(
    said: str, words: str, vflsim: Callable[..., Ended], tiny_results: Path
) -> None:
    ended = vflsim("compare", str(tiny_results), "--target", said)
    assert ended.status == 2
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_verify_finds_sound_runs_sound(vflsim: Callable[..., Ended], tiny_results: Path) -> None:
    ended = vflsim("verify", str(tiny_results))
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == f"4 runs in {tiny_results} are sound\n"


# --- what there is ----------------------------------------------------------------------------------------------------


def test_list_names_every_kind_with_its_keys(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("list")
    assert ended.status == 0
    for name, classes in TABLES.items():
        assert f"{name}\n" in ended.out
        for entry in classes:
            assert f"  {entry.model_fields['kind'].default}" in ended.out
    assert "  t_synchronous{t, " in ended.out
    assert "``" not in ended.out


def test_list_of_one_table_holds_nothing_else(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("list", "networks")
    assert ended.out.startswith("networks\n  fair")
    assert "synchronous" not in ended.out


def test_schema_is_json(vflsim: Callable[..., Ended]) -> None:
    schema = json.loads(vflsim("schema").out)
    assert schema["title"] == "vflsim scenario"
    assert {"data", "protocols", "timing"} <= schema["properties"].keys()


def test_data_list_says_where_each_set_is(vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflsim.learning.data.files.cache_folder", lambda: Path("cache"))
    monkeypatch.delenv("VFLSIM_DATA", raising=False)
    ended = vflsim("data", "list")
    assert ended.status == 0
    assert re.search(r"^digits +1,797 +64 +10 +multiclass +CC BY 4.0 +embedded", ended.out, re.MULTILINE)
    assert re.search(r"^mnist +70,000 .* absent", ended.out, re.MULTILINE)
    assert "vflsim data get NAME" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 120


def test_a_stand_in_has_no_features_and_never_replaces_the_file(tmp_path: Path, vflsim: Callable[..., Ended]) -> None:
    (tmp_path / "a.csv").write_text("id,u,y\n" + "".join(f"{k},{k / 7},{k % 2}\n" for k in range(20)))
    (tmp_path / "b.csv").write_text("id,v\n" + "".join(f"{k},{k / 9}\n" for k in range(20)))
    data = {"parties": ["a.csv", "b.csv"], "label": "y", "id": "id"}
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(json.dumps(raw(data=data, partition={"by": "views"}, timing={})))
    ended = vflsim("data", "stand-in", scenario, "b.csv", "--out", tmp_path / "others")
    assert (ended.status, ended.out.strip()) == (0, str(tmp_path / "others" / "b.csv"))
    assert (tmp_path / "others" / "b.csv").read_text().splitlines()[:3] == ['"id","v"', '"0",0', '"1",0']
    ended = vflsim("data", "stand-in", scenario, "b.csv", "--out", tmp_path)
    assert ended.status == 2
    assert "would replace the file itself" in ended.err
    ended = vflsim("data", "stand-in", scenario, "c.csv", "--out", tmp_path / "others")
    assert ended.status == 2
    assert "c.csv is no file of the scenario's data" in ended.err


def test_data_get_of_an_embedded_set_has_nothing_to_do(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("data", "get", "digits")
    assert (ended.status, ended.out) == (0, "digits comes with scikit-learn: there is nothing to download\n")


def test_the_version_is_the_packages(vflsim: Callable[..., Ended]) -> None:
    assert vflsim("--version").out == f"vflsim {version('vflsim')}\n"


# --- real processes and terminals -------------------------------------------------------------------------------------


def test_the_console_script_is_installed() -> None:
    script = shutil.which("vflsim", path=str(Path(sys.executable).parent))
    assert script is not None
    done = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert "check" in done.stdout


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error() -> None:
    piped = f"{sys.executable} -m vflsim schema | head -n 1"
    done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_an_encoding_without_the_signs_does_not_end_a_command(
    tiny_results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii", write_through=True))
    monkeypatch.setattr(sys, "argv", ["vflsim", "compare", str(tiny_results)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    assert " ? 0." in out.getvalue().decode("ascii")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_terminal_shows_progress_and_tables_that_fit() -> None:
    longer = ("--set", "stop={time: 30 s}", "--set", "protocols.async.stop={rounds: 10}")
    shown = in_terminal("run", "tiny.yaml", "--seeds", "[0]", *longer, columns=80)
    assert "━" in shown
    left, begin = r"([\d.]+ \w+ left +)?", r"(training|evaluating) (\x1b\[\d+m)?(wait|async)(\x1b\[0m)?"
    assert re.search(rf"[12]/2  {left}{begin}, seed 0 +[\d.]+ m?s of 30 s +round \d+", shown)
    assert max(map(len, lines(shown))) <= 80
    words = " ".join(lines(shown)).split()
    for word in ("protocol", "accuracy", "rounds", "bytes", "async"):
        assert word in words


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_data_list_fits_100_columns() -> None:
    shown = lines(in_terminal("data", "list", columns=100))
    assert max(map(len, shown)) <= 100
    assert any("embedded" in line for line in shown if line.startswith("digits"))


def test_commands_take_some_protocols_of_a_scenario(vflsim: Callable[..., Ended]) -> None:
    checked = vflsim("check", "tiny.yaml", "--quick", "--protocol", "async")
    assert "1 protocols × 2 seeds = 2 runs" in checked.out
    ended = vflsim("run", "tiny.yaml", "--timing-only", "--protocol", "async", "--out", "some")
    assert (ended.status, ended.err) == (0, "")
    assert [path.name for path in Path("some").iterdir() if path.is_dir()] == ["async"]
    assert "did you mean 'async'" in vflsim("live", "tiny.yaml", "--protocol", "asink").err


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("form", "begins"),
    [("latex", "% in the preamble"), ("markdown", "## tiny"), ("csv", "protocol,"), ("html", "<table>")],
)
def test_compare_prints_its_table_in_a_format_and_nothing_else(
    form: str, begins: str, vflsim: Callable[..., Ended], tiny_results: Path
) -> None:
    ended = vflsim("compare", tiny_results, f"--{form}")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith(begins)
    assert "wait" in ended.out


def test_a_sweep_prints_its_tables_in_one_format_and_the_rest_elsewhere(vflsim: Callable[..., Ended]) -> None:
    told = ("sweep", "tiny.yaml", "--over", "training.batch=10,20", "--timing-only", "--seeds", "0:1", "--csv")
    ended = vflsim(*told)
    title, header = ended.out.splitlines()[:2]
    assert title == "tiny: mean round"
    assert header.startswith("batch size,wait,")
    assert "2/2 batch = 20" in ended.err
    assert "files in results/" in ended.err
    assert "several formats at once" in vflsim(*told, "--html").err


def test_a_live_run_without_delays_that_only_time_could_end_is_told_of_its_option(
    vflsim: Callable[..., Ended],
) -> None:
    stopped = ["--set", "stop=null", "--set", "stop.time=5 s"]
    ended = vflsim("live", "tiny.yaml", "--delays", "none", *stopped)
    assert (ended.status, "leave out --delays none, or stop by one of" in " ".join(ended.err.split())) == (2, True)
    ended = vflsim("check", "tiny.yaml", "--set", "timing={network: dedicated}", *stopped)
    assert "leave out --set timing={network: dedicated}, or stop" in " ".join(ended.err.split())
