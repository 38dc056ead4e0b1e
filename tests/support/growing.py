"""Studies that run again and again in one folder, with checkpoints by events, and what a fresh folder would hold."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tiny_worlds import raw

from vflsim.results.store.folder import Prepared
from vflsim.results.verify import verify_folder
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.studies.runs.progress import Growth, StudyRun, Watcher
from vflsim.studies.study import run_study
from vflsim.studies.texts import sentences
from vflsim.vocabulary.execution_options import RunOptions

OFTEN = RunOptions(checkpoint_every=3600.0)
"""Checkpoints are on; ``by_events`` says when."""
TIMING = {"clients": {"compute": "2 ms", "upload_delay": {"kind": "exponential", "mean": "5 ms"}}}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "wait": {"kind": "synchronous"},
    "async": {"kind": "asynchronous"},
    "t-sync": {"kind": "t_synchronous", "t": 2},
}


def said(*protocols: str, **changes: Any) -> Scenario:
    chosen = {name: PROTOCOLS[name] for name in protocols or ("wait", "async")}
    return load(raw(chosen, **{"timing": TIMING, "stop": {"rounds": 8}, "seeds": [0, 1], **changes}))


class Listening(Watcher):
    """Remembers which runs began, and what was told before."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, int]] = []
        self.continued: list[tuple[str, int]] = []
        self.lines: list[str] = []
        self.place: Path | None = None

    def grown(self, what: Prepared, growth: Growth) -> None:
        self.lines, self.place = sentences(what, growth), what.moved_to

    def began(self, run: StudyRun) -> None:
        (self.continued if run.continued else self.runs).append((run.protocol, run.seed))


def grown(scenario: Scenario, out: Path, options: RunOptions = OFTEN, **more: Any) -> Listening:
    watcher = Listening()
    run_study(scenario, out, options=options, watcher=watcher, **more)
    return watcher


def bytes_of(out: Path) -> dict[str, bytes]:
    """All tables and weights of a folder, without those of earlier scenarios."""
    found = (path for path in out.rglob("*") if path.suffix in (".parquet", ".safetensors"))
    found = (path for path in found if "earlier" not in path.relative_to(out).parts)
    return {str(name): path.read_bytes() for path in found if "/." not in f"/{(name := path.relative_to(out))}"}


def earlier(out: Path) -> Path:
    """The only results of an earlier scenario in a folder."""
    (place,) = (out / "earlier").iterdir()
    return place


_known: dict[str, Path] = {}


def _computed(scenario: Scenario) -> Path:
    """A folder with the results of a scenario and their checkpoints, computed once."""
    key = repr(scenario.document.raw)
    if key not in _known:
        _known[key] = Path(mkdtemp()) / "out"
        run_study(scenario, _known[key], options=OFTEN)
    return _known[key]


def begin(scenario: Scenario, out: Path, checkpoints: bool = True) -> None:
    """Place the results of a scenario in a new folder, as if they had been computed there."""
    hidden = None if checkpoints else shutil.ignore_patterns(".seed-*.checkpoint")
    shutil.copytree(_computed(scenario), out, ignore=hidden, dirs_exist_ok=True)


def fresh(scenario: Scenario) -> dict[str, bytes]:
    return bytes_of(_computed(scenario))


def assert_like_fresh(out: Path, scenario: Scenario) -> None:
    assert bytes_of(out) == fresh(scenario)
    assert verify_folder(out) == []
