"""Run a scenario once for every value of a key: one results folder per value, one page for all."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflsim.errors import ResultsError, ScenarioError, VflsimError
from vflsim.results.folder import step_aside, step_back
from vflsim.results.lock import locked
from vflsim.results.sweep import Sweep, SweepPage, SweepValue
from vflsim.results.write import LOCK, SCENARIO, SWEEP, write_file
from vflsim.scenario.emit import flow
from vflsim.scenario.load import load
from vflsim.scenario.models import Scenario
from vflsim.studies.options import DEFAULT_OPTIONS, RunOptions
from vflsim.studies.resume import another, refuse_another
from vflsim.studies.study import Study, checked, engine_of, run_study
from vflsim.studies.watching import Watcher
from vflsim.studies.work import stored_text

_NAME_LENGTH = 48
_INSTEAD = {
    "seeds": "give the seeds with --seeds; every value is run with all of them",
    "name": "the name says nothing about timing or learning; sweep over what does",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One value of a sweep: ``number`` (from 1) of ``total``, and its scenario."""

    number: int
    total: int
    value: Any
    scenario: Scenario


class SweepWatcher:
    """Observer of a sweep, without any action: subclasses override the methods that they need."""

    def prepared(self, folder: Path, moved_to: Path | None) -> None:
        """Handle the sweep's folder; ``moved_to`` is the new place of an earlier sweep."""

    def watching(self, step: Step) -> AbstractContextManager[Watcher]:
        """Return the context of one value's study, which gives the watcher of its runs."""
        return contextlib.nullcontext(Watcher())

    def ended(self, step: Step, study: Study) -> None:
        """Handle a value whose runs have ended and are written."""


@dataclass(frozen=True, slots=True)
class SweepDone:
    """Results of a sweep, and the errors of failed runs by (value's position, protocol, seed)."""

    sweep: Sweep
    failures: dict[tuple[int, str, int], VflsimError]


def run_sweep(
    source: str | Path | Mapping[str, Any],
    key: str,
    values: Sequence[Any],
    overrides: Sequence[str] = (),
    out: Path | str | None = None,
    *,
    timing_only: bool = False,
    options: RunOptions = DEFAULT_OPTIONS,
    watcher: SweepWatcher | None = None,
) -> SweepDone:
    """Run a scenario once for every value of a dotted key and write ``results/<scenario>-sweep-<key>`` (or ``out``).

    ``key`` may list several keys, separated by commas: all get the same value.
    All values, with their data, are checked before the first run. ``sweep.json`` exists from the start and lists the
    finished values; an interrupted sweep keeps those. Repeating the same sweep replaces its results run by run, or,
    with ``options.resume``, adds the missing ones; a different earlier sweep is moved aside.
    Raises the errors of ``run_study``, and ScenarioError for repeated values and keys that cannot be swept over.
    """
    watcher = watcher or SweepWatcher()
    scenarios = _scenarios(source, key, values, overrides, timing_only)
    folder = Path(out) if out is not None else default_folder(scenarios[0], key, timing_only)
    names = folder_names(key, values)
    texts = [stored_text(scenario, timing_only) for scenario in scenarios]
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    entries = tuple(
        SweepValue(value=value, folder=name, scenario_sha256=digest)
        for value, name, digest in zip(values, names, digests, strict=True)
    )
    page = SweepPage(scenario=scenarios[0].name, key=key, timing_only=timing_only, values=entries)
    failures: dict[tuple[int, str, int], VflsimError] = {}
    with locked(folder), engine_of(options, options.workers) as engine:
        page, moved = _make_room(folder, page, texts, options.resume)
        try:
            write_file(folder / SWEEP, page.text())
            watcher.prepared(folder, moved)
            for position, scenario in enumerate(scenarios):
                step, place = Step(position + 1, len(scenarios), values[position], scenario), folder / names[position]
                with watcher.watching(step) as each:
                    study = run_study(
                        scenario, place, timing_only=timing_only, options=options, watcher=each, engine=engine
                    )
                failures |= {(position, *run): error for run, error in study.failures.items()}
                page = page.with_finished(position)
                write_file(folder / SWEEP, page.text())
                watcher.ended(step, study)
        except BaseException:
            _withdraw(folder, moved)
            raise
    return SweepDone(Sweep.open(folder), failures)


def default_folder(scenario: Scenario, key: str, timing_only: bool) -> Path:
    """Return the default results folder of a sweep."""
    return Path("results") / (f"{scenario.name}-sweep-{_plain(key)}" + ("-timing" if timing_only else ""))


def keys_of(key: str) -> list[str]:
    """Split ``KEY`` or ``KEY,KEY,…`` into its keys. Raises ScenarioError for empty and repeated keys."""
    keys = [each.strip() for each in key.split(",")]
    for each in keys:
        if not all(each.split(".")) or keys.count(each) > 1:
            what = f"the key {each} stands twice" if each else "a key is missing"
            raise ScenarioError(what, f"--over {key}", "KEY=V1,V2,… or KEY,KEY=V1,V2,… for keys that go together")
    return keys


def folder_names(key: str, values: Sequence[Any]) -> list[str]:
    """Name the folder of every value, such as ``mean-5-ms``: names differ even if case is ignored."""
    parts = key.split(".")
    last = _plain("-".join(parts[-2:] if parts[-1].isdecimal() else parts[-1:])) or "value"
    names: list[str] = []
    taken: set[str] = set()
    for value in values:
        stem = f"{last}-{_plain(flow(value))}"[:_NAME_LENGTH].rstrip("-.")
        name, number = stem, 1
        while name.casefold() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        names.append(name)
    return names


def _plain(text: str) -> str:
    """Reduce a text to characters that a folder's name may contain."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", re.sub(r"^-", "minus-", text)).strip("-._")


def _scenarios(
    source: str | Path | Mapping[str, Any], key: str, values: Sequence[Any], overrides: Sequence[str], timing_only: bool
) -> list[Scenario]:
    """Load and check the scenario of every value."""
    keys = keys_of(key)
    for each in keys:
        if each in _INSTEAD:
            raise ScenarioError(f"a sweep cannot go over {each}", f"--over {key}", remedy=_INSTEAD[each])
    if not values:
        raise ScenarioError("a sweep needs at least one value", f"--over {key}", "KEY=V1,V2,…")
    texts = [flow(value) for value in values]
    for text in texts:
        if texts.count(text) > 1:
            raise ScenarioError(f"the value {text} stands twice", f"--over {key}", "every value once")
    scenarios = []
    for text in texts:
        try:
            scenario = load(source, [*overrides, *(f"{each}={text}" for each in keys)])
            checked(scenario, timing_only)
        except ScenarioError as error:
            what, where = error.what, error.where
            for each in keys:
                what, where = (part.replace(f"--set {each}=", f"--over {each}=") for part in (what, where))
            raise ScenarioError(what, where, error.allowed, error.remedy) from None
        scenarios.append(scenario)
    return scenarios


def _make_room(folder: Path, page: SweepPage, texts: list[str], resume: bool) -> tuple[SweepPage, Path | None]:
    """Return the initial page, and the new place of a different earlier sweep.

    Raises ResultsError for a folder that holds no sweep, and for resuming a different sweep.
    """
    try:
        if all(entry.name == LOCK for entry in folder.iterdir()):
            return page, None
        if not (folder / SWEEP).is_file():
            raise ResultsError(
                f"holds other things than a sweep (no {SWEEP})",
                str(folder),
                "a new or empty folder, or one that an earlier sweep has written",
                "choose another --out",
            )
        there = SweepPage.read(folder)
        if there.bare() == page.bare() and all(
            _holds(folder / entry.folder / SCENARIO, text) for entry, text in zip(page.values, texts, strict=True)
        ):
            return page.resumed(there), None
        if resume:
            _refuse(folder, there.bare(), page.bare(), texts)
        return page, step_aside(folder)
    except OSError as error:
        what = f"cannot be used: {error.strerror or error}"
        raise ResultsError(what, str(folder), "a folder that may be written", "choose another --out") from error


def _refuse(folder: Path, there: SweepPage, page: SweepPage, texts: list[str]) -> None:
    """Raise ResultsError: the folder holds a different sweep than the one to resume."""
    if there != page:
        raise another(folder, there.model_dump(mode="json"), page.model_dump(mode="json"))
    for entry, text in zip(page.values, texts, strict=True):
        refuse_another(folder / entry.folder, text)


def _holds(path: Path, text: str) -> bool:
    """Return whether the file holds this text or does not exist."""
    return not path.exists() or path.read_bytes() == text.encode()


def _withdraw(folder: Path, moved: Path | None) -> None:
    """Restore the folder if no run was written."""
    with contextlib.suppress(OSError):
        if any(entry.name not in (SWEEP, LOCK) for entry in folder.iterdir()):
            return
        (folder / SWEEP).unlink(missing_ok=True)
        if moved is not None:
            step_back(moved, folder)
