"""What is imported, and what is not: by ``sys.modules`` of processes of their own, never by the clock."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
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
    *(TRACKERS := {"mlflow", "tensorboard", "wandb", "trackio", "polars", "duckdb"}),
}
NOT_FOR_TRAINING = {
    *TRACKERS,
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

HELP = (["--help"], ["run", "--help"], ["--version"], ["scenarios"])
MISTYPED = (["run"], ["check"], ["sweep", "--over", "a=1"], ["plot"], ["compare"], ["explain"], ["list"])
"""Each before a name that does not exist."""
TIMING = (["list", "delays"], ["list", "availabilities"])
OPTIMIZERS_AND_PROTOCOLS: dict[str, tuple[str, dict[str, object]]] = {
    "sgd": ("sgd", {"kind": "synchronous"}),
    "adam": ("adam", {"kind": "synchronous"}),
    "fedvs": ("sgd", {"kind": "fedvs", "K": 1, "T": 1}),
}


@dataclass(frozen=True)
class Ran:
    """How a command ended, and which modules it was the first to import in its process."""

    status: int
    imported: set[str]


def ran(*commands: Sequence[object], cache: Path) -> dict[str, Ran]:
    """Run commands one after another in a process of their own, with this cache folder."""
    code = (
        "import json, sys\n"
        "from vflsim.cli import main\n"
        "known, ends = set(), []\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['vflsim', *command]\n"
        "    try: main()\n"
        "    except SystemExit as ended: ends.append([ended.code or 0, sorted(sys.modules.keys() - known)])\n"
        "    known |= sys.modules.keys()\n"
        "print('\\n' + json.dumps(ends))"
    )
    said = [[str(word) for word in command] for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(said)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
    )
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout.splitlines()[-1])
    assert len(ends) == len(commands), done.stderr
    return {" ".join(words): Ran(status, {*found}) for words, (status, found) in zip(said, ends, strict=True)}


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Commands that need little, the lightest first; no list has been kept before."""
    cache = tmp_path_factory.mktemp("cache")
    return ran(*HELP, *([*command, "nowhere_at_all"] for command in MISTYPED), *TIMING, cache=cache)


@pytest.mark.parametrize("arguments", HELP, ids=" ".join)
def test_help_waits_for_no_library_of_numbers(arguments: list[str], light: dict[str, Ran]) -> None:
    found = light[" ".join(arguments)]
    assert (found.status, found.imported & HEAVY) == (0, set())


@pytest.mark.parametrize("arguments", MISTYPED, ids=lambda arguments: arguments[0])
def test_a_mistyped_name_waits_for_no_library_of_numbers(arguments: list[str], light: dict[str, Ran]) -> None:
    found = light[" ".join([*arguments, "nowhere_at_all"])]
    assert (found.status, found.imported & HEAVY) == (2, set())


@pytest.mark.parametrize("arguments", TIMING, ids=" ".join)
def test_a_list_of_kinds_of_timing_waits_for_no_pytorch(arguments: list[str], light: dict[str, Ran]) -> None:
    found = light[" ".join(arguments)]
    assert (found.status, found.imported & NOT_FOR_DELAYS) == (0, set())


def written(folder: Path, name: str, optimizer: str, protocol: dict[str, object]) -> Path:
    """Write a scenario on data of its own."""
    np.savez(folder / "d.npz", x=np.arange(240.0).reshape(40, 6) % 7, y=np.arange(40) % 3)
    how = {"kind": optimizer, "lr": 0.1}
    said = raw(
        {"only": protocol},
        data={"file": str(folder / "d.npz"), "label": "y"},
        training__client_optimizer=how,
        training__server_optimizer=how,
    )
    (folder / f"{name}.yaml").write_text(json.dumps(said))
    return folder / f"{name}.yaml"


NOT_FOR_TIMING = {"torch", "pandas", "matplotlib", "scipy.stats", "sklearn", "dp_accounting", "cryptography", "captum"}
"""Shapes and dtypes are all that keys, timing and closed forms need of models; a trace needs simpy."""
WITHOUT_TENSORS = (
    (["check", "quickstart", "--quick"], NOT_FOR_TIMING | {"sympy"}),
    (["analyze", "quickstart"], NOT_FOR_TIMING),
    (["check", "timing/t_of_m", "--quick"], NOT_FOR_TIMING | {"sympy"}),
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "unneeded"), WITHOUT_TENSORS, ids=[" ".join(each) for each, _ in WITHOUT_TENSORS]
)
def test_keys_timing_and_closed_forms_of_built_in_models_wait_for_no_pytorch(
    arguments: list[str], unneeded: set[str], tmp_path: Path
) -> None:
    (outcome,) = ran(arguments, cache=tmp_path).values()
    assert (outcome.status, outcome.imported & unneeded) == (0, set())


def test_a_new_scenario_waits_for_no_library_of_numbers(tmp_path: Path) -> None:
    (outcome,) = ran(["new", "mine", "--out", tmp_path / "mine.yaml"], cache=tmp_path).values()
    assert (outcome.status, outcome.imported & HEAVY) == (0, set())
    assert (tmp_path / "mine.yaml").is_file()


@pytest.mark.slow
def test_lists_of_all_kinds_need_no_pytorch_and_the_second_one_no_library_of_numbers(tmp_path: Path) -> None:
    (first,) = ran(["list"], cache=tmp_path).values()
    assert (first.status, first.imported & NOT_FOR_TIMING) == (0, set())
    again = ran(["list"], ["list", "protocols"], ["list", "presets"], cache=tmp_path)
    assert [(each.status, each.imported & HEAVY) for each in again.values()] == [(0, set())] * 3


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Ran]]:
    """A folder with scenarios and results, and the commands that check and run them."""
    folder = tmp_path_factory.mktemp("start")
    commands: list[list[object]] = []
    for name, (optimizer, protocol) in OPTIMIZERS_AND_PROTOCOLS.items():
        scenario = written(folder, name, optimizer, protocol)
        commands += [["check", scenario], ["run", scenario, "--no-report", "--out", folder / name]]
    return folder, ran(*commands, cache=folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS_AND_PROTOCOLS)
def test_a_run_and_its_check_import_only_what_they_need(name: str, training: tuple[Path, dict[str, Ran]]) -> None:
    folder, commands = training
    found = [each for words, each in commands.items() if f"{name}.yaml" in words]
    assert [each.status for each in found] == [0, 0]
    assert set().union(*(each.imported for each in found)) & NOT_FOR_TRAINING == set()
    assert (folder / name / "summary.md").is_file()


def test_digits_are_read_without_scikit_learn(tmp_path: Path) -> None:
    (found,) = ran(["check", "timing/two_clients", "--quick"], cache=tmp_path).values()
    assert (found.status, "sklearn" in found.imported) == (0, False)


@pytest.mark.parametrize(("arguments", "status"), [(["--version"], 0), (["check", "nowhere_at_all"], 2)])
def test_a_command_ends_at_once_with_its_status_after_what_is_due_at_the_end(arguments: list[str], status: int) -> None:
    code = (
        "import atexit, sys\n"
        "from vflsim.cli import script\n"
        "class Large:\n"
        "    def __del__(self): print('taken apart', flush=True)\n"
        "large = Large()\n"
        "atexit.register(print, 'at the end')\n"
        f"sys.argv = ['vflsim', *{arguments!r}]\n"
        "script()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stdout.endswith("at the end\n")
    assert ("nowhere_at_all" in done.stderr) == (status == 2)
