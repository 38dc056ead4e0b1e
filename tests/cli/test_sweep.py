"""``vflsim sweep``, ``vflsim compare`` of sweeps and with ``--quantiles``, and ``stop.precision``, end to end."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended
from interrupted_steps import interrupt_at
from swept import run_sweep

from vflsim.scenario import load
from vflsim.studies.study import run_study

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
constants: {slow: 1}
timing:
  server: {compute: 1 ms}
  clients:
    - {select: all, compute: 2 ms, upload_delay: {kind: exponential, mean: 20*slow ms}}
protocols:
  wait: {kind: synchronous}
  t-sync: {kind: t_synchronous, t: 2}
stop: {rounds: 50}
record: rounds
"""
LONG = ("--timing-only", "--set", "stop.rounds=1000")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(SCENARIO)


@pytest.fixture(scope="module")
def _timed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("timed")
    run_study(load(SCENARIO), folder / "one", timing_only=True)
    run_sweep(SCENARIO, "constants.slow", [1, 2], out=folder / "swept", timing_only=True)
    return folder


@pytest.fixture
def timed(_timed: Path) -> None:
    """Results without training in ``one``, and those of a sweep in ``swept``."""
    shutil.copytree(_timed, ".", dirs_exist_ok=True)


def files() -> dict[str, bytes]:
    return {path.as_posix(): path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}


# --- sweep ------------------------------------------------------------------------------------------------------------


def test_sweep_says_what_each_value_did_and_ends_with_the_table(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("sweep", "tiny.yaml", "--over", "protocols.t-sync.t=1:4:2", "--timing-only", "--seeds", "0:3")
    assert (ended.status, ended.err) == (0, "")
    shared, first, second = ended.out.splitlines()[:3]
    assert shared.startswith("12 runs; 3 of them the same as at an earlier value")
    assert re.fullmatch(r"1/2 t = 1  6 runs in [\d.]+ s", first)
    assert re.fullmatch(r"2/2 t = 3  6 runs: 3 shared with other values, 3 run in [\d.]+ s", second)
    assert "\ntiny: mean round\nt  " in ended.out
    rows = re.findall(r"^([13]) +(\d.* ms) +(\d.* ms)$", ended.out, re.MULTILINE)
    assert [row[0] for row in rows] == ["1", "3"]
    assert rows[0][1] == rows[1][1]
    folder = "results/tiny-sweep-protocols.t-sync.t-timing"
    assert ended.out.endswith(f"12 runs; files in {folder}\n")
    assert {each["folder"] for each in json.loads(Path(folder, "sweep.json").read_text())["points"]} == {"t-1", "t-3"}
    compared = vflsim("compare", folder)
    assert compared.status == 0
    assert compared.out in ended.out


def test_sweep_goes_over_a_grid_and_its_tables_and_figures_have_all_keys(vflsim: Callable[..., Ended]) -> None:
    Path("keys.yaml").write_text("slow: [1, 2]\n")
    over = ("--over", "t=1,3", "--over-file", "keys.yaml")
    ended = vflsim("sweep", "tiny.yaml", *over, "--timing-only", "--out", "there")
    assert (ended.status, ended.err) == (0, "")
    assert re.search(r"^4/4 t = 3, slow = 2  2 runs: 1 shared with other values, 1 run in ", ended.out, re.MULTILINE)
    assert re.findall(r"^([13]) +([12])  +\d", ended.out, re.MULTILINE) == [
        ("1", "1"),
        ("1", "2"),
        ("3", "1"),
        ("3", "2"),
    ]
    assert re.search(r"^t \(choice\) +slow \(world\) +wait +t-sync$", ended.out, re.MULTILINE)
    folders = {"t-1_slow-1", "t-1_slow-2", "t-3_slow-1", "t-3_slow-2"}
    assert {path.name for path in Path("there").iterdir()} == {"sweep.json", *folders}
    assert vflsim("compare", "there").out in ended.out
    assert vflsim("verify", "there").out == "8 runs in there are sound\n"
    assert vflsim("plot", "there").out == "there/sweep.png\n"
    zipped = vflsim("sweep", "tiny.yaml", *over, "--zip", "--timing-only", "--out", "pairs")
    assert {path.name for path in Path("pairs").iterdir()} == {"sweep.json", "t-1_slow-1", "t-3_slow-2"}
    assert "shared" not in zipped.out


@pytest.mark.slow
def test_a_dry_run_lists_the_runs_and_writes_nothing(vflsim: Callable[..., Ended]) -> None:
    before = files()
    ended = vflsim("sweep", "tiny.yaml", "--over", "t=1,3", "--over", "slow=1,2", "--dry-run", "--workers", "2")
    assert (ended.status, ended.err) == (0, "")
    rows = re.findall(r"^([13]) +([12]) +(wait|t-sync) +1 +(.*)$", ended.out, re.MULTILINE)
    assert len(rows) == 8
    assert [row[:3] for row in rows if "as in t-1_slow-" in row[3]] == [("3", "1", "wait"), ("3", "2", "wait")]
    assert "4 points, 8 runs; 2 of them the same as at an earlier point, and not run again." in ended.out
    assert re.search(r"on 2 workers, if each has a core", ended.out)
    assert files() == before


def test_sweep_takes_overrides_and_a_folder(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim(
        "sweep", "tiny.yaml", "--over", "constants.slow=1,10", "--out", "there", "--set", "protocols.t-sync=null", *LONG
    )
    assert ended.status == 0
    one, ten = (
        float(re.search(rf"^{value} +([\d.]+) ± ", ended.out, re.MULTILINE)[1])  # type: ignore[index]
        for value in (1, 10)
    )
    assert 7 < ten / one < 10  # the other times stay as they are
    assert "± 95 % by batch means" in ended.out
    assert {path.name for path in Path("there").iterdir()} == {"sweep.json", "slow-1", "slow-10"}


def test_sweep_ends_with_1_and_a_message_where_runs_failed(vflsim: Callable[..., Ended]) -> None:
    key = "protocols.wait.training"
    values = "{server_optimizer: {kind: sgd, lr: 1e+300}},{server_optimizer: {kind: sgd, lr: 0.1}}"
    ended = vflsim("sweep", "tiny.yaml", "--over", f"{key}={values}")
    assert ended.status == 1
    assert re.search(r"^1/2 training = .*2 runs in [\d.]+ s, 1 failed$", ended.out, re.MULTILINE)
    assert re.match(r"training = .*1e\+300}}: error: wait, seed 0: ", ended.err)
    assert ended.err.count("error: ") == 1
    assert "Traceback" not in ended.err


def test_an_interrupted_sweep_says_what_is_kept(vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(105, patch)  # two runs of 50 steps at the first value
        ended = vflsim("sweep", "tiny.yaml", "--over", "constants.slow=1,2", "--out", "there", "--together", "off")
    assert ended.status == 130
    assert ended.err == (
        "interrupted: 1 of 2 values had finished and are kept in there\n  see them with: vflsim compare there\n"
        "  resume with: vflsim sweep tiny.yaml --over constants.slow=1,2 --out there --together off --resume\n"
    )
    compared = vflsim("compare", "there")
    assert compared.status == 0
    assert "Not finished: slow = 2." in compared.out
    with monkeypatch.context() as patch:
        interrupt_at(3, patch)
        ended = vflsim("sweep", "tiny.yaml", "--over", "constants.slow=1,2", "--out", "elsewhere")
    assert ended.err == "interrupted before the first value had finished: nothing was written\n"
    assert not Path("elsewhere").exists()


def test_a_resumed_sweep_says_of_every_value_what_was_kept_and_what_was_run(vflsim: Callable[..., Ended]) -> None:
    argv = ("sweep", "tiny.yaml", "--over", "constants.slow=1,2", "--out", "there", "--timing-only")
    assert vflsim(*argv).status == 0
    shutil.rmtree("there/slow-2/wait")
    lines = vflsim(*argv, "--resume").out.splitlines()
    assert "1/2 slow = 1  2 runs, all kept from before" in lines
    assert any(re.fullmatch(r"2/2 slow = 2  2 runs: 1 kept from before, 1 run in [\d.]+ s", line) for line in lines)
    verified = vflsim("verify", "there")
    assert (verified.status, verified.out) == (0, "4 runs in there are sound\n")


def test_a_sweep_into_a_link_leaves_the_link_and_the_earlier_values(vflsim: Callable[..., Ended]) -> None:
    Path("disk").mkdir()
    Path("link").symlink_to("disk/sweep")
    for value in (1, 2):
        assert vflsim("sweep", "tiny.yaml", "--over", f"constants.slow={value}", "--out", "link", *LONG).status == 0
        assert Path("link").is_symlink()
    assert {path.name for path in Path("disk").iterdir()} == {"sweep"}
    assert Path("link/slow-1").is_dir()
    assert Path("link/slow-2").is_dir()


def test_values_of_another_sweep_stay_and_that_is_said(vflsim: Callable[..., Ended]) -> None:
    argv = ("sweep", "tiny.yaml", "--out", "there", "--timing-only", "--over")
    for values in ("1,2", "3"):
        ended = vflsim(*argv, f"constants.slow={values}")
    assert "there: 0 of 2 values of an earlier sweep stay\n" in ended.out
    assert "  there, but not in this sweep: slow = 1, slow = 2\n" in ended.out
    assert vflsim("verify", "there").status == 0
    again = vflsim(*argv, "constants.slow=1,2")
    assert "1/2 slow = 1  2 runs, all kept from before" in again.out


@pytest.mark.parametrize(
    ("argv", "fragments"),
    [
        (["--over", "protocols.t-sync.t=2,5"], ("--over protocols.t-sync.t=5", "5", "4")),
        (["--over", "protocols.tsync.t=2"], ("--over protocols.tsync.t=2",)),
        (["--over", "constants.slow=1,1"], ("the value 1 stands twice",)),
        ([], ("a sweep needs a key", "--over")),
        (["--over", "kind=1"], ("keys that end in kind", "timing.clients.0.upload_delay.kind")),
        (["--over", "t=1,2", "--over", "slow=1", "--zip"], ("different lengths", "protocols.t-sync.t has 2")),
        (["--over", "t=1", "--set", "protocols.t-sync.t=3"], ("--over protocols.t-sync.t: would undo --set",)),
        (["--over-file", "absent.yaml"], ("absent.yaml: the file cannot be read",)),
        (["--over", "constants.slow"], ("the key or its values are missing", "KEY=V1,V2,…")),
        (["--over", "constants.slow=5:5"], ("5:5 holds no value",)),
        (
            ["--over", "constants.slow=1,2", "--over", "constants.slow=3"],
            ("--over constants.slow", "would undo --over constants.slow", "every key once"),
        ),
        (
            ["--over", "constants.slow=1,2", "--set", "constants.slow=3"],
            ("--over constants.slow: would undo --set constants.slow=3",),
        ),
        (["--over", "seeds=[0],[1]"], ("cannot go over seeds", "--seeds")),
        (["--over", "constants.slow=1", "--set", "stop.precision=0"], ("0 is out of range", "above 0 and below 1")),
        (["--over", "constants.slow=1", "--out", "."], ("holds other things than a sweep", "choose another --out")),
        (["--over", "stop={target: {test_accuracy: 0.9}}", "--timing-only"], ("never reaches a target alone",)),
    ],
)
def test_whatever_is_wrong_with_a_sweep_is_one_message_and_nothing_is_written(
    argv: list[str], fragments: tuple[str, ...], vflsim: Callable[..., Ended]
) -> None:
    before = files()
    ended = vflsim("sweep", "tiny.yaml", *argv)
    assert ended.status == 2
    assert ended.err.count("error: ") == 1
    assert "Traceback" not in ended.err
    for fragment in fragments:
        assert fragment in ended.err
    assert ended.out == ""
    assert files() == before


# --- compare ----------------------------------------------------------------------------------------------------------


def test_compare_shows_quantiles_with_intervals_or_that_rounds_are_too_few(vflsim: Callable[..., Ended]) -> None:
    vflsim("run", "tiny.yaml", *LONG, "--out", "there")
    ended = vflsim("compare", "there", "--quantiles")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("tiny: round durations after the warm-up\nprotocol  rounds ")
    assert re.search(r"^wait +[\d,]+ +[\d.]+ \([\d.]+ … [\d.]+\) ms", ended.out, re.MULTILINE)
    assert "not enough rounds" in ended.out


def test_a_sweep_shows_any_measure_and_percentile_at_every_point(vflsim: Callable[..., Ended]) -> None:
    swept = ("sweep", "tiny.yaml", "--over", "partition.clients=2,4", *LONG, "--out", "there")
    ended = vflsim(*swept, "--metric", "p99")
    assert (ended.status, ended.err) == (0, "")
    compared = vflsim("compare", "there", "--metric", "p99")
    assert compared.out.startswith("tiny: p99 of round durations\nclients  ")
    assert compared.out in ended.out
    assert ended.out.index("p99 of round durations") < ended.out.index("tiny: mean round")
    quantile = vflsim("compare", "there/clients-4", "--quantiles").out
    cell = re.search(r"^wait +[\d,]+ +.+? ms  +.+? ms  +(.+? ms)", quantile, re.MULTILINE)
    assert cell is not None
    value = cell[1].partition(" ")[0]
    assert re.search(rf"^4 +{re.escape(value)} ", compared.out, re.MULTILINE)
    rounds = vflsim("compare", "there", "--metric", "rounds").out
    assert rounds.startswith("tiny: rounds\n")
    assert re.search(r"^2 +1000 +1000$", rounds, re.MULTILINE)
    every = vflsim("compare", "there", "--quantiles").out
    assert re.findall(r"^tiny: (p[\d.]+) of round durations", every, re.MULTILINE) == ["p50", "p90", "p99"]
    assert vflsim("plot", "there", "--kind", "sweep", "--metric", "p99", "--out", "p99.png").status == 0


def test_an_unknown_metric_of_a_sweep_costs_none_of_its_tables(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("sweep", "tiny.yaml", "--over", "constants.slow=1", "--timing-only", "--metric", "typo")
    assert ended.status == 2
    assert "tiny: mean round" in ended.out
    assert "files in results/tiny-sweep-constants.slow-timing" in ended.out
    assert "there is no metric, measure or percentile 'typo'" in ended.err


@pytest.mark.usefixtures("timed")
@pytest.mark.parametrize("kept", ["one", "swept one"])
def test_only_sweeps_show_a_chosen_metric(kept: str, vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("compare", *kept.split(), "--metric", "p99")
    assert (ended.status, ended.err.count("error: ")) == (2, 1)
    assert "is no sweep" in ended.err


@pytest.mark.usefixtures("timed")
def test_a_sweep_keeps_its_own_tables_beside_results(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("compare", "swept", "one", "--baseline", "wait")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("tiny\nprotocol")
    assert "\n\ntiny: mean round (swept)\nslow" in ended.out


@pytest.mark.usefixtures("timed")
@pytest.mark.parametrize(
    ("argv", "fragment"),
    [
        (["compare", "swept", "--metric", "typo"], "there is no metric, measure or percentile 'typo'"),
        (["plot", "swept", "--kind", "sweep", "--metric", "test_accuracy"], "'test_accuracy'"),
        (["compare", "swept", "--baseline", "typo"], "there is no protocol 'typo'"),
        (["compare", "swept", "--budget", "10 s"], "nothing was evaluated"),
        (["compare", "swept", "--out", "figures"], "there are only sweeps"),
        (["compare", "absent"], "no such folder"),
        (["plot", "swept/nothing"], "no such folder"),
        (["run", "tiny.yaml", "--out", "swept"], "holds other things than results"),
    ],
)
def test_what_cannot_be_done_with_a_sweep_says_what_can(
    argv: list[str], fragment: str, vflsim: Callable[..., Ended]
) -> None:
    before = files()
    ended = vflsim(*argv)
    assert ended.status == 2
    assert fragment in ended.err
    assert ended.err.count("error: ") == 1
    assert files() == before


# --- precision --------------------------------------------------------------------------------------------------------


def test_a_run_ends_when_it_is_precise_and_compare_shows_how_precise(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("run", "tiny.yaml", "--timing-only", "--set", "stop={precision: 5 %}")
    assert ended.status == 0
    assert len(re.findall(r"rounds  stop: precision$", ended.out, re.MULTILINE)) == 2
    for name in ("wait", "t-sync"):
        mean, half = map(float, re.search(rf"^{name} .* ([\d.]+) ± ([\d.]+) ms", ended.out, re.MULTILINE).groups())  # type: ignore[union-attr]
        assert half / mean < 0.053  # rounded for show
    page = json.loads(Path("results/tiny-timing/wait/seed-0/run.json").read_text())
    assert (page["stop_reason"], page["reproducible"]) == ("precision", True)


@pytest.mark.slow
def test_check_says_that_its_number_of_rounds_is_a_guess(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("check", "tiny.yaml", "--set", "stop={precision: 1 %}")
    assert ended.status == 0
    assert "Where stop.precision ends a run, its rounds are a guess" in ended.out
    assert "unlimited" not in ended.out
    assert "guess" not in vflsim("check", "tiny.yaml").out
