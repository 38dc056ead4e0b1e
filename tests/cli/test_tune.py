"""``vflsim tune``, end to end: the table, the scenarios it names, interruption, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended
from interrupted_steps import interrupt_at

SCENARIO = """\
name: tiny
data: {name: digits, train_rows: 60, test_fraction: 0.1, validation_fraction: 0.1}
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
  server: {compute: 1 ms}
  clients: [{select: all, compute: 2 ms, upload_delay: {kind: exponential, mean: 20 ms}}]
protocols:
  wait: {kind: synchronous}
  async: {kind: asynchronous}
stop: {rounds: 12}
evaluate: {every: 3 rounds}
"""
KEY = "training.client_optimizer.lr,training.server_optimizer.lr"
OVER = ("--over", f"{KEY}=1e-6,0.3")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(SCENARIO)


def test_tune_ends_with_every_score_and_with_scenarios_that_run(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("tune", "tiny.yaml", *OVER, "--set", "seeds=[0]", "--in-tuning", "stop.rounds=30")
    assert (ended.status, ended.err) == (0, "")
    assert re.match(r"1/2 lr = 1e-06  2 runs in [\d.]+ s\n2/2 lr = 0\.3  2 runs in [\d.]+ s\n", ended.out)
    assert re.search(r"^0\.3 \(common\) +\* 0\.\d+ +\* 0\.\d+ +\* 0\.\d+$", ended.out, re.MULTILINE)
    assert "2 runs a protocol (seed 10000)" in ended.out
    assert "Warning: wait: its best, lr = 0.3, is the largest of the grid" in ended.out
    assert vflsim("compare", "results/tiny-tune").out in ended.out
    for name in ("tuned", "common"):
        command = f"vflsim run results/tiny-tune/{name}.yaml"
        assert f"{command}\n" in ended.out
        run = vflsim(*command.split()[1:])
        assert run.status == 0
        assert f"files in results/tiny-{name}\n" in run.out


def test_tune_ends_with_1_where_a_protocol_failed_at_every_value(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("tune", "tiny.yaml", "--over", f"{KEY}=1e6,1e7")
    assert ended.status == 1
    assert "wait failed at every value" in ended.out
    assert "common.yaml" not in ended.out
    assert "Traceback" not in ended.err


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_an_interrupted_tuning_says_how_it_goes_on(
    vflsim: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(30, patch)
        ended = vflsim("tune", "tiny.yaml", *OVER, "--together", "off")
    assert ended.status == 130
    assert "1 of 2 values had finished and are kept in results/tiny-tune" in ended.err
    assert f"resume with: vflsim tune tiny.yaml --over {KEY}=1e-6,0.3 --together off --resume" in ended.err
    assert vflsim("tune", "tiny.yaml", *OVER, "--resume", "--workers", "2").status == 0


@pytest.mark.parametrize(
    ("argv", "fragments"),
    [
        ((*OVER, "--set", "data.validation_fraction=0"), ("no validation rows", "--set data.validation_fraction=0.1")),
        ((*OVER, "--seeds", "0:1"), ("the scenario reports seed 0", "--seeds [1]")),
        ((*OVER, "--seeds", "5"), ("seeds=5", "write [5]")),
        ((*OVER, "--over", "training.batch=10,20"), ("one axis, not 2", "commas between keys that go together")),
        ((*OVER, "--metric", "test_accuracy"), ("test_accuracy", "validation_accuracy")),
        (("--over", "training.batch=10"), ("at least two values",)),
        ((*OVER, "--in-tuning", "stop.ronds=3"), ("stop.ronds",)),
    ],
)
def test_what_is_wrong_with_a_tuning_is_one_message_and_nothing_is_written(
    argv: tuple[str, ...], fragments: tuple[str, ...], vflsim: Callable[..., Ended]
) -> None:
    ended = vflsim("tune", "tiny.yaml", *argv)
    assert ended.status == 2
    assert ended.err.count("error: ") == 1
    for fragment in fragments:
        assert fragment in ended.err
    assert not Path("results").exists()
