"""Sweeps: one results folder per value of a key, and ``sweep.json``, which lists them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vflsim.errors import ResultsError
from vflsim.files import text
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.summary import summarise
from vflsim.results.write import SWEEP
from vflsim.vocabulary.quantities import DIMENSIONS, Quantity

_WORDS = {
    "batch": "batch size",
    "down": "bandwidth",
    "embedding": "embedding size",
    "lr": "learning rate",
    "mean": "mean delay",
    "up": "bandwidth",
}
"""The words for the last part of a key, where it does not speak for itself."""


class SweepValue(BaseModel):
    """One value of a sweep, its folder beside ``sweep.json``, and whether all its runs have ended.

    ``scenario_sha256`` is the digest of the folder's ``scenario.yaml``: it ties results to the value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: Any
    folder: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")
    finished: bool = False
    scenario_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")


class SweepPage(BaseModel):
    """Content of ``sweep.json``: the scenario's name, the dotted key, and its values in the given order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scenario: str
    key: str
    timing_only: bool
    values: tuple[SweepValue, ...] = Field(min_length=1)

    @classmethod
    def read(cls, folder: Path | str) -> SweepPage:
        """Read a folder's page. Raises ResultsError if it is absent or damaged."""
        path = Path(folder) / SWEEP
        try:
            return cls.model_validate(json.loads(text(path)))
        except (OSError, ValueError) as error:
            if not path.is_file():
                what = "no such folder" if not path.parent.is_dir() else f"no {SWEEP} in it"
                raise ResultsError(what, str(folder), "a folder that vflsim sweep has written") from error
            problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise ResultsError(
                f"damaged: {problem.splitlines()[0]}", str(path), remedy="run the sweep again"
            ) from error

    def with_finished(self, position: int) -> SweepPage:
        """Mark a value as finished."""
        done = self.values[position].model_copy(update={"finished": True})
        return self.model_copy(update={"values": (*self.values[:position], done, *self.values[position + 1 :])})

    def bare(self) -> SweepPage:
        """Return the page without digests and as if nothing had run: equal pages belong to the same sweep."""
        plain = {"finished": False, "scenario_sha256": None}
        return self.model_copy(update={"values": tuple(value.model_copy(update=plain) for value in self.values)})

    def resumed(self, earlier: SweepPage) -> SweepPage:
        """Take over which values an earlier page of the same sweep lists as finished."""
        pairs = zip(self.values, earlier.values, strict=True)
        values = tuple(value.model_copy(update={"finished": before.finished}) for value, before in pairs)
        return self.model_copy(update={"values": values})

    def text(self) -> str:
        """Return the text of the file."""
        return json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


@final
@dataclass(frozen=True)
class Sweep:
    """The finished part of a sweep: ``results[k]`` belongs to ``values[k]``, in the given order.

    ``pending`` are the values with unfinished runs; ``targets``, if given, replaces the scenario's.
    """

    folder: Path
    scenario: str
    key: str
    timing_only: bool
    values: tuple[Any, ...]
    results: tuple[Results, ...]
    pending: tuple[Any, ...]
    targets: Mapping[str, Any] | None = None

    @classmethod
    def open(cls, folder: Path | str, targets: Mapping[str, Any] | None = None) -> Sweep:
        """Open the folder of a sweep; ``targets`` replaces the scenario's.

        Raises ResultsError if it is not a sweep, is damaged, or no value has finished.
        """
        folder, page = Path(folder), SweepPage.read(folder)
        done = [entry for entry in page.values if entry.finished]
        if not done:
            raise ResultsError("no value of this sweep has finished", str(folder), remedy="run the sweep again")
        results = tuple(Results.open(folder / entry.folder) for entry in done)
        pending = tuple(entry.value for entry in page.values if not entry.finished)
        values = tuple(entry.value for entry in done)
        return cls(folder, page.scenario, page.key, page.timing_only, values, results, pending, targets)

    def __iter__(self) -> Iterator[tuple[Any, Results]]:
        return iter(zip(self.values, self.results, strict=True))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def protocols(self) -> tuple[str, ...]:
        """Protocols of all values, in the scenario's order."""
        return tuple(dict.fromkeys(name for found in self.results for name in found.protocols))

    @property
    def label(self) -> str:
        """The swept key in words: ``clients``, ``learning rate``, ``bandwidth``."""
        names = (key.rpartition(".")[2] for key in self.key.split(","))
        return ", ".join(dict.fromkeys(_WORDS.get(name, name.replace("_", " ")) for name in names))

    @cached_property
    def numbers(self) -> tuple[float, ...] | None:
        """The values as numbers in SI units (``5 Mbps`` is 5e6, ``unlimited`` infinite); None unless all are."""
        found = [_number(value) for value in self.values]
        return None if None in found else tuple(number for number in found if number is not None)

    def estimates(self, measure: str = "round_duration", target: str | None = None) -> pd.DataFrame:
        """Return one measure of :func:`~vflsim.results.summary.summarise`, one row per value and protocol.

        Columns: position (of the value, from 0), value, protocol, unit, failed, diverged, the fields of ``Estimate``.
        ``target`` is written as in the summary (``test_accuracy ≥ 0.9 for 5 evaluations``). Raises NotRecordedError,
        which lists the allowed ones, for a measure or a target that no value has.
        """
        frames = []
        self._refuse_unknown(measure, target)
        for position, (value, summary) in enumerate(zip(self.values, self.summaries, strict=True)):
            rows = summary[(summary["measure"] == measure) & summary["baseline"].isna()]
            rows = rows[rows["target"].isna() if target is None else rows["target"] == target]
            rows = rows.drop(columns=["measure", "target", "baseline"])
            rows.insert(0, "position", position)
            rows.insert(1, "value", pd.Series([value] * len(rows), index=rows.index, dtype=object))
            frames.append(rows)
        return pd.concat(frames, ignore_index=True)

    @cached_property
    def measures(self) -> dict[str, tuple[str, ...]]:
        """The measures of all values, each with its targets (most have none)."""
        pairs = [pair for summary in self.summaries for pair in zip(summary["measure"], summary["target"], strict=True)]
        found: dict[str, list[str]] = {measure: [] for measure, _ in pairs}
        for measure, target in dict.fromkeys(pairs):
            found[measure] += [target] if isinstance(target, str) else []
        return {measure: tuple(targets) for measure, targets in found.items()}

    def _refuse_unknown(self, measure: str, target: str | None) -> None:
        known = self.measures
        if measure not in known:
            raise NotRecordedError(f"there is no measure {measure!r}", str(self.folder), ", ".join(known))
        if target is None and known[measure]:
            raise NotRecordedError(
                f"{measure} is about a target", str(self.folder), f"target: {', '.join(known[measure])}"
            )
        if target is not None and target not in known[measure]:
            allowed = ", ".join(known[measure]) or f"none: {measure} is about no target"
            raise NotRecordedError(f"there is no target {target!r} of {measure}", str(self.folder), allowed)

    @cached_property
    def summaries(self) -> tuple[pd.DataFrame, ...]:
        """The summary of every value's results."""
        return tuple(summarise(found, self.targets) for found in self.results)


def _number(value: Any) -> float | None:
    """Convert a value as a scenario would, in any dimension; None if it is not a number."""
    for dimension in DIMENSIONS:
        try:
            return float(Quantity(dimension, unlimited=True).convert(value, {}))
        except ValueError:
            continue
    return None
