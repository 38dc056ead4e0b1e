"""What the command line says of mechanisms: before a run, after it, and that those without pay nothing."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended

from vflsim.learning.privacy.accounting import epsilon_of, noise_multiplier_for

SCENARIO = """\
name: tiny
data: {name: digits, train_rows: 100, test_fraction: 0.2}
partition: {clients: 2, by: columns}
models:
  client: {kind: linear, embedding: 6}
  aggregate: mean
  server: {kind: linear}
training:
  batch: 20
  client_optimizer: {kind: sgd, lr: 0.2}
  server_optimizer: {kind: sgd, lr: 0.1}
timing:
  clients: {select: all, upload_delay: 1 s}
protocols:
  wait: {kind: synchronous}
  wait-dp: {kind: synchronous, mechanism: {kind: gaussian, clip: 1, delta: 1e-5, epsilon: 5, per: release}}
  budget: {kind: synchronous, mechanism: {kind: gaussian, clip: 1, delta: 1e-5, epsilon: 5, per: run, releases: 2}}
stop: {rounds: 10}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "tiny.yaml"
    place.write_text(SCENARIO)
    return place


def flat(ended: Ended) -> str:
    return " ".join(ended.out.split())


def test_check_says_what_epsilon_is_about(vflsim: Callable[..., Ended], path: Path) -> None:
    ended = vflsim("check", path)
    assert ended.status == 0
    assert "wait-dp: ε = 5 (δ = 1e-05) per release of a sample; for a whole run more" in flat(ended)
    assert ", 5 for a whole run of at most 2 releases." in flat(ended)
    assert "wait: ε" not in flat(ended)


def test_run_says_epsilon_of_what_was_released_and_stops_a_run_beyond_its_budget(
    vflsim: Callable[..., Ended], path: Path, tmp_path: Path
) -> None:
    ended = vflsim("run", path, "--out", tmp_path / "within")  # 100 rows: 5 rounds an epoch
    assert ended.status == 0
    both = epsilon_of(noise_multiplier_for(5, 1e-5), 1e-5, 2)
    said = f"ε = 5 (δ = 1e-05) per release of a sample, {both:.4g} for the 2 releases of a sample in the whole run"
    assert f"wait-dp: {said}" in flat(ended)
    ended = vflsim("run", path, "--out", tmp_path / "beyond", "--set", "stop.rounds=11")
    assert ended.status == 1
    assert "budget, seed 0: client-1, embed, round 10 at" in ended.err
    assert "the noise is for 2 releases of a sample in a run" in ended.err
    assert "remedy: raise the mechanism's releases or rounds" in ended.err


def test_list_knows_the_mechanisms(vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("list", "mechanisms")
    assert "mechanisms\n  gaussian{delta, clip," in ended.out
    assert "Clip each row" in ended.out


@pytest.mark.slow
def test_a_scenario_without_mechanisms_never_loads_the_accountant(path: Path) -> None:
    plain = "\n".join(line for line in SCENARIO.splitlines() if "mechanism" not in line)
    path.write_text(plain)
    code = (
        "import sys; from vflsim.cli import main; sys.argv = ['vflsim', 'check', sys.argv[1]]\n"
        "try: main()\n"
        "finally: print('dp_accounting' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")
