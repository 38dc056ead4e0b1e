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
    "scipy.optimize",
    "matplotlib",
    "sklearn",
    "dp_accounting",
    "cryptography",
    "captum",
}


def imported(among: set[str], *arguments: object) -> list[str]:
    """Which of the modules a process of the console script has imported when it ends."""
    code = (
        "import json, sys\n"
        "from vflsim.cli import main\n"
        "among = set(json.loads(sys.argv[1]))\n"
        "sys.argv = ['vflsim', *sys.argv[2:]]\n"
        "try: main()\n"
        "finally: print('\\n' + json.dumps(sorted(among & sys.modules.keys())))"
    )
    command = [sys.executable, "-c", code, json.dumps(sorted(among)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]], ids=" ".join)
def test_help_waits_for_no_library_of_numbers(arguments: list[str]) -> None:
    found = imported(HEAVY, *arguments)
    assert found == []


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_run_imports_only_what_it_needs(optimizer: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.arange(240.0).reshape(40, 6) % 7, y=np.arange(40) % 3)
    how = {"kind": optimizer, "lr": 0.1}
    said = raw(
        data={"file": str(tmp_path / "d.npz"), "label": "y"},
        training__client_optimizer=how,
        training__server_optimizer=how,
    )
    scenario = tmp_path / "s.yaml"
    scenario.write_text(json.dumps(said))
    assert imported(NOT_FOR_TRAINING, "run", scenario, "--out", tmp_path / "out") == []
    assert (tmp_path / "out" / "summary.md").is_file()
