"""Stop rules of the tests' own, as users write them: some work, and some break their contract, each in one way."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from vflsim.protocol import Count, PositiveNumber, Row, StopRule


class Below(StopRule):
    """The test loss has fallen below a share of the first."""

    kind: Literal["below"] = "below"
    share: PositiveNumber

    def ends(self, rows: Sequence[Row]) -> str:
        first, last = rows[0]["test_loss"], rows[-1]["test_loss"]
        return f"test_loss is {last:.3f} after {len(rows)} rows" if last < self.share * first else ""


class After(StopRule):
    """So many rows."""

    kind: Literal["after"] = "after"
    rows: Count

    def ends(self, rows: Sequence[Row]) -> str:
        return f"{self.rows} rows" if len(rows) >= self.rows else ""


class F9(After):
    def ends(self, rows: Sequence[Row]) -> str:
        return "yes" if rows[-1]["test_f9"] > 0 else ""


class Column(After):
    @property
    def columns(self) -> tuple[str, ...]:
        return ("test_f9",)


class Yes(After):
    def ends(self, rows: Sequence[Row]) -> Any:
        return len(rows) > 3


class Counting(After):
    asked_before: ClassVar[list[int]] = []

    def ends(self, rows: Sequence[Row]) -> str:
        self.asked_before.append(1)
        return "often" if len(self.asked_before) % 2 else ""


class Writes(After):
    def ends(self, rows: Sequence[Row]) -> str:
        rows[-1]["test_loss"] = 0.0  # type: ignore[index]
        return ""


class LateFailure(After):
    def ends(self, rows: Sequence[Row]) -> str:
        if rows[-1]["round"] > 12:  # the trial has fewer
            raise LookupError("many rounds")
        return ""
