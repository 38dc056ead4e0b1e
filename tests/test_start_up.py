"""What is imported, and what is not: by ``sys.modules`` of processes of their own, never by the clock."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_worlds import raw

HEAVY = {
    "torch",
    "numpy",
    "pandas",
    "scipy",
    "pyarrow",
    "sympy",
    "matplotlib",
    "sklearn",
    "simpy",
    "ruamel.yaml",
    "dp_accounting",
    "cryptography",
    "captum",
}
NOT_FOR_TRAINING = {
    "torch._dynamo",  # PyTorch's own optimiser classes import it, at the price of PyTorch itself
    "sympy",
    "scipy.signal",
    "scipy.stats",
    "matplotlib",
    "sklearn",
    "dp_accounting",
    "cryptography",
    "captum",
}


NOT_FOR_DELAYS = HEAVY - {"numpy", "scipy"}
"""Delays compute with numpy, and with scipy's special functions."""


def imported(among: set[str], *arguments: object, status: int = 0) -> list[str]:
    """Which of the modules a process of the console script has imported when it ends with this status."""
    code = (
        "import json, sys\n"
        "from vflsim.cli import main\n"
        "among = set(json.loads(sys.argv[1]))\n"
        "sys.argv = ['vflsim', *sys.argv[2:]]\n"
        "try: main()\n"
        "finally: print('\\n' + json.dumps(sorted(among & sys.modules.keys())))"
    )
    command = [sys.executable, "-c", code, json.dumps(sorted(among)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], ["scenarios"]], ids=" ".join)
def test_help_waits_for_no_library_of_numbers(arguments: list[str]) -> None:
    found = imported(HEAVY, *arguments)
    assert found == []


@pytest.mark.parametrize(
    "arguments",
    [["run"], ["check"], ["sweep", "--over", "a=1"], ["plot"], ["compare"], ["explain"], ["list"]],
    ids=lambda arguments: arguments[0],
)
def test_a_mistyped_name_waits_for_no_library_of_numbers(arguments: list[str]) -> None:
    assert imported(HEAVY, *arguments, "nowhere_at_all", status=2) == []


@pytest.mark.parametrize("what", ["delays", "availabilities"])
def test_a_list_of_kinds_of_timing_waits_for_no_pytorch(what: str) -> None:
    assert imported(NOT_FOR_DELAYS, "list", what) == []


@pytest.mark.parametrize(
    ("optimizer", "protocol"),
    [("sgd", {"kind": "synchronous"}), ("adam", {"kind": "synchronous"}), ("sgd", {"kind": "fedvs", "K": 1, "T": 1})],
    ids=["sgd", "adam", "fedvs"],
)
def test_a_run_and_its_check_import_only_what_they_need(
    optimizer: str, protocol: dict[str, object], tmp_path: Path
) -> None:
    np.savez(tmp_path / "d.npz", x=np.arange(240.0).reshape(40, 6) % 7, y=np.arange(40) % 3)
    how = {"kind": optimizer, "lr": 0.1}
    said = raw(
        {"only": protocol},
        data={"file": str(tmp_path / "d.npz"), "label": "y"},
        training__client_optimizer=how,
        training__server_optimizer=how,
    )
    scenario = tmp_path / "s.yaml"
    scenario.write_text(json.dumps(said))
    assert imported(NOT_FOR_TRAINING, "check", scenario) == []
    assert imported(NOT_FOR_TRAINING, "run", scenario, "--no-report", "--out", tmp_path / "out") == []
    assert (tmp_path / "out" / "summary.md").is_file()


def test_digits_are_read_without_scikit_learn() -> None:
    assert imported({"sklearn"}, "check", "timing/two_clients", "--quick") == []
