"""How well the time that is left is told: shown ÷ what it then took, at 25, 50 and 75 % of shipped studies.

Each study runs by itself in a process of its own, with its own stop rules, as `vflsim run` does in a terminal with one
worker; 25 % are of the seconds from the first run's start, when the terminal begins to show it, to the end, all files
written. Noted is what the terminal shows at that moment. Aim: within 0.7 to 1.3. With --busy N, N processes that do
nothing but compute run beside it.
Run: VFLSIM_DATA=… python benchmarks/progress.py [--busy N] [--workers N] [STUDY …]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

from estimates import busy

FOLDER = Path(__file__).parents[1] / "scenarios"
STUDIES = (
    "quickstart",
    "all_protocols",
    "stragglers/cache",
    "stragglers/window",
    "stragglers/late",
    "inference/deadline",
    "privacy",
    "timing/energy",
    "leakage_coded",
    "vafl/parkinson",
)
MOMENTS = (0.25, 0.5, 0.75)
LEAST, MOST = 0.7, 1.3


def noted(path: str, workers: int) -> dict[str, float | list[float | None]]:
    """Run a study; return its seconds, and those that were shown as left at each of ``MOMENTS`` (None for nothing)."""
    from vflsim import load
    from vflsim.studies.display import Display
    from vflsim.studies.study import run_study
    from vflsim.tables.terminal import SafeConsole
    from vflsim.vocabulary.execution_options import RunOptions

    notes: list[tuple[float, float | None]] = []

    class NotingDisplay(Display):
        """Notes the time that is left whenever a terminal would show it."""

        def show(self) -> None:
            """Show as usual."""
            super().show()
            notes.append((time.monotonic(), self.seconds_left))

    scenario = load(path)
    with tempfile.TemporaryDirectory() as folder, NotingDisplay(SafeConsole(stderr=True), scenario) as display:
        run_study(scenario, Path(folder) / "out", options=RunOptions(workers=workers), watcher=display.alone)
    began = notes[0][0]
    whole = time.monotonic() - began
    shown = [next((left for at, left in reversed(notes) if at - began <= part * whole), None) for part in MOMENTS]
    return {"whole": whole, "left": shown}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", default=STUDIES)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="run one study in this process")
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(noted(str(FOLDER / f"{options.studies[0]}.yaml"), options.workers)))
        return 0
    within, count = 0, 0
    print("| study | seconds | " + " | ".join(f"at {part:.0%}" for part in MOMENTS) + " |")
    print("|---|---:|" + "---:|" * len(MOMENTS))
    with busy(options.busy):
        for study in options.studies:
            command = [sys.executable, __file__, "--alone", "--workers", str(options.workers), study]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, start_new_session=True)
            told = json.loads(ran.stdout)
            cells = []
            for part, left in zip(MOMENTS, told["left"], strict=True):
                ratio = float("nan") if left is None else left / ((1 - part) * told["whole"])
                count, within = count + 1, within + (LEAST <= ratio <= MOST)
                cells.append("none" if left is None else f"{ratio:.2f}")
            print(f"| `{study}` | {told['whole']:.0f} | {' | '.join(cells)} |", flush=True)
    print(f"{within} of {count} within {LEAST} to {MOST}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
