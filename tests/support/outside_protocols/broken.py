"""Protocols with mistakes in their own code."""

from __future__ import annotations

from typing import Any, Literal

from vflsim.protocol import Synchronous


class InCheck(Synchronous):
    kind: Literal["in_check"] = "in_check"  # type: ignore[assignment]

    def check(self, context: Any) -> None:
        raise KeyError("width")


class InCheckData(Synchronous):
    kind: Literal["in_check_data"] = "in_check_data"  # type: ignore[assignment]

    def check(self, context: Any) -> None:
        if context.setting is not None:
            raise TypeError("no features")


class InLearners(Synchronous):
    kind: Literal["in_learners"] = "in_learners"  # type: ignore[assignment]

    def learners(self, setting: Any, seed: int) -> Any:
        return setting.nothing
