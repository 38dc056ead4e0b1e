"""Every benchmark runs from its command line to its end, at a size that takes seconds."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from browser import CHROMIUM
from tiny_worlds import raw

import vflsim
from vflsim.scenario.load import as_scenario

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
TWO_CLIENTS = str(ROOT / "scenarios" / "timing" / "two_clients.yaml")
QUICKSTART = str(ROOT / "scenarios" / "quickstart.yaml")
DATA = Path(os.environ.get("VFLSIM_DATA") or "nowhere")


@dataclass(frozen=True)
class Quick:
    """How a benchmark runs in seconds: the words of its command line, and a part of what it prints.

    ``constants`` replace text of the script, where no word makes it quick; scripts that start themselves again have
    none. ``needs`` is a data set or a program.
    """

    words: tuple[str, ...]
    prints: str
    constants: tuple[tuple[str, str], ...] = ()
    needs: str = ""


QUICK = {
    "bare_centralised": Quick((str(DATA / "fashion-mnist"), "1"), "epoch  1: test loss", needs="fashion-mnist"),
    "blinding": Quick(("--repeats", "2"), "20 clients: masks"),
    "calibration": Quick(
        ("--simulated", "--rounds", "60", "--seeds", "1", "--clients", "1"),
        "| 1 client |",
        (("(32, 64, 256, 512)", "(64,)"), ("PREDICTED_ROUNDS = 1_000", "PREDICTED_ROUNDS = 50")),
    ),
    "coding": Quick((), "2 threads, medians of 1", (("REPEATS = 31", "REPEATS = 1"),)),
    "coverage": Quick(("ties", "--studies", "20"), "at most 0.05"),
    "coverage_rounds": Quick(("2",), "stop: time, 2 studies", (("(10, 30, 100, 1000)", "(10,)"),)),
    "damage": Quick(("1", "0"), "digests rewritten"),
    "easter_cuts": Quick(("--epochs", "0"), "| a random quarter | 196 |", needs="mnist"),
    "easter_plane": Quick(("--parties", "2", "--rounds", "1"), "2 parties: plain"),
    "estimates": Quick((TWO_CLIENTS, "--seconds", "0.05", "--each"), "of 1 runs within 0.5 to 2.0"),
    "event_path": Quick(
        ("rates", "table", "growth", "--clients", "3"),
        "| clients in their order |",
        (("SAMPLED = 4.0", "SAMPLED = 0.01"), ("TURNS = 300, 3", "TURNS = 30, 1"), ("max(6, 20_000", "max(6, 60")),
    ),
    "explore": Quick((), "complaints: []", (("range(200, 350, 15)", "range(200, 230, 15)"),), needs="chromium"),
    "fair_sharing": Quick((), "28 parties, everybody to everybody", (("(10, 100, 1000)", "(10,)"),)),
    "faults": Quick(("1", "0", "shard changed"), "refused 1; 1 of 1"),
    "gpu": Quick(
        ("--device", "cpu", "--clients", "2", "--rounds", "1", "--together", "1", "5"), "5 runs side by side: a round"
    ),
    "kill_and_resume": Quick(("1", "centralised"), "1 of 1 kills without a trace"),
    "kills": Quick(("1", "0", "wait", "ignore", "async"), "1 kills (SIGKILL) of entries"),
    "learning_plane": Quick(("--clients", "2"), "1 threads, medians of 1 blocks", (("BLOCKS = 9", "BLOCKS = 1"),)),
    "memory": Quick(("1", "wait", "ignore"), "one after another", needs="fashion-mnist"),
    "memory_estimates": Quick(("easter, hidden",), "of 1 within 0.8 to 1.3"),
    "network_kinds": Quick(("rounds", TWO_CLIENTS), "| `timing/two_clients` | `wait` |"),
    "own_code": Quick(("2", "3"), "unwatched"),
    "own_pace": Quick(("--clients", "2", "--steps", "2"), "2 clients, a step of one: plain"),
    "public_names": Quick(("HEAD",), "names of vflsim.protocol: ", needs="git"),
    "same_results": Quick(("HEAD", TWO_CLIENTS), "two_clients.yaml: 6 tables and weights, ", needs="git"),
    "semi_supervised_completion": Quick(
        ("RESULTS", "--protocol", "synchronous"),
        "synchronous seed 0 trained: head",
        (("STEPS, ROWS = 4, 1500", "STEPS, ROWS = 1, 5"),),
    ),
    "sweep": Quick(("2",), "with the same files", (('"stop.time=120 s"', '"stop.rounds=3"'),)),
    "timing": Quick(("events",), "client-rounds/s", (("= 20_000", "= 200"),)),
    "vectorised": Quick(
        (), "million client-rounds/s", (("4_000_000", "2_000"), ("(8, 28, 100, 1000, 10_000)", "(8,)"))
    ),
    "vim": Quick(("--protocols", "vimsgd"), "1 blocks", (("BLOCKS = 2, 7", "BLOCKS = 1, 1"),), needs="mnist"),
    "whole_process": Quick(("1", "1"), "vflsim run / bare script", needs="fashion-mnist"),
    "workers": Quick(("4", "1"), "runs a s of the clock", needs="fashion-mnist"),
}
STARTING = {
    "damage", "estimates", "faults", "kill_and_resume", "kills", "memory", "memory_estimates", "public_names",
    "same_results", "whole_process", "workers",
}  # fmt: skip
"""Those with processes of their own, which read the script again: they run in one, too."""
ELSEWHERE = {"kernel_network": "remote/test_kernel_network.py"} | dict.fromkeys(
    ("live_against_simulated", "progress"), "test_benchmarks.py"
)
"""Those that another file of tests runs."""
PARTS = {"packet_delay"}
"""Those that another benchmark starts."""


def is_program(script: Path) -> bool:
    """Whether a script has a command line; others are modules of those that have."""
    return "\nif __name__ ==" in script.read_text("utf-8")


def test_every_benchmark_has_a_quick_form() -> None:
    programs = {script.stem for script in BENCHMARKS.glob("*.py") if is_program(script)} - PARTS
    assert programs == {*QUICK, *ELSEWHERE}
    for name, file in ELSEWHERE.items():
        assert name in (ROOT / "tests" / file).read_text("utf-8")


@pytest.fixture
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a benchmark set what it likes in this process: threads, errors of numpy, modules, its own signal."""
    threads, modules = torch.get_num_threads(), {*sys.modules}
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    with np.errstate(), warnings.catch_warnings():
        yield
    torch.set_num_threads(threads)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    own = {script.stem for script in BENCHMARKS.glob("*.py")}
    for name in own & (sys.modules.keys() - modules):
        del sys.modules[name]


def has(needed: str) -> bool:
    """Whether a data set or a program is here."""
    programs = {"chromium": CHROMIUM, "git": shutil.which("git") if (ROOT / ".git").exists() else None}
    return programs[needed] is not None if needed in programs else (DATA / needed).is_dir()


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a study that has views and labels of a few rows."""
    folder = tmp_path_factory.mktemp("views") / "run"
    record = {"tables": "rounds", "views": {"rows": 40}}
    said = raw("synchronous", seeds=[0], stop={"rounds": 30}, record=record, training__dtype="float32")
    vflsim.run(as_scenario(said), folder, progress=False)
    return str(folder)


@pytest.mark.slow
@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize("name", QUICK)
def test_a_benchmark_runs_to_its_end(
    name: str, views: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = QUICK[name]
    if quick.needs and not has(quick.needs):
        pytest.skip(f"needs {quick.needs}")
    script = BENCHMARKS / f"{name}.py"
    words = [views if word == "RESULTS" else word for word in quick.words]
    code = script.read_text("utf-8")
    for constant, smaller in quick.constants:
        assert code.count(constant) == 1, constant
        code = code.replace(constant, smaller)
    if name in STARTING:
        assert not quick.constants
        done = subprocess.run([sys.executable, str(script), *words], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed = done.stdout
    else:
        monkeypatch.setattr(sys, "argv", [str(script), *words])
        exec(compile(code, str(script), "exec"), {"__name__": "__main__", "__file__": str(script)})
        printed = capsys.readouterr().out
    assert quick.prints in printed
