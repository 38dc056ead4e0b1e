"""What is imported, and what is not: by ``sys.modules`` of processes of their own, never by the clock."""

import json
import subprocess
import sys
from collections.abc import Sequence
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


def imported(among: set[str], *commands: Sequence[object], status: int = 0) -> list[str]:
    """Which of the modules a process has imported after these commands, each of which ends with this status."""
    code = (
        "import json, sys\n"
        "from vflsim.cli import main\n"
        "among, commands, ends = set(json.loads(sys.argv[1])), json.loads(sys.argv[2]), []\n"
        "for command in commands:\n"
        "    sys.argv = ['vflsim', *command]\n"
        "    try: main()\n"
        "    except SystemExit as ended: ends.append(ended.code or 0)\n"
        "print('\\n' + json.dumps([ends, sorted(among & sys.modules.keys())]))"
    )
    said = json.dumps([[str(word) for word in command] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(sorted(among)), said], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ends, found = json.loads(done.stdout.splitlines()[-1])
    assert ends == [status] * len(commands), done.stderr
    modules: list[str] = found
    return modules


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], ["scenarios"]], ids=" ".join)
def test_help_waits_for_no_library_of_numbers(arguments: list[str]) -> None:
    found = imported(HEAVY, arguments)
    assert found == []


@pytest.mark.parametrize(
    "arguments",
    [["run"], ["check"], ["sweep", "--over", "a=1"], ["plot"], ["compare"], ["explain"], ["list"]],
    ids=lambda arguments: arguments[0],
)
def test_a_mistyped_name_waits_for_no_library_of_numbers(arguments: list[str]) -> None:
    assert imported(HEAVY, [*arguments, "nowhere_at_all"], status=2) == []


@pytest.mark.parametrize("what", ["delays", "availabilities"])
def test_a_list_of_kinds_of_timing_waits_for_no_pytorch(what: str) -> None:
    assert imported(NOT_FOR_DELAYS, ["list", what]) == []


def test_the_second_list_of_all_kinds_imports_no_library_of_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "torch" in imported(HEAVY, ["list"])
    assert imported(HEAVY, ["list"], ["list", "protocols"], ["list", "presets"]) == []


def test_closed_forms_need_no_pandas(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.arange(240.0).reshape(40, 6) % 7, y=np.arange(40) % 3)
    said = raw({"only": {"kind": "synchronous"}}, data={"file": str(tmp_path / "d.npz"), "label": "y"})
    scenario = tmp_path / "s.yaml"
    scenario.write_text(json.dumps(said))
    assert imported({"pandas", "matplotlib", "simpy"}, ["analyze", scenario]) == []


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
    run = ["run", scenario, "--no-report", "--out", tmp_path / "out"]
    assert imported(NOT_FOR_TRAINING, ["check", scenario], run) == []
    assert (tmp_path / "out" / "summary.md").is_file()


def test_digits_are_read_without_scikit_learn() -> None:
    assert imported({"sklearn"}, ["check", "timing/two_clients", "--quick"]) == []
