"""The models that a run left behind: what clients send, and what the server predicts from it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflsim.trained.models import (
        ComparedResults,
        SplitAnswer,
        StudyResults,
        TrainedModels,
        Uploads,
        Wiring,
        trained_models,
    )

__all__ = ["ComparedResults", "SplitAnswer", "StudyResults", "TrainedModels", "Uploads", "Wiring", "trained_models"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: to open results needs no scenario, to rebuild their models does."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.models"), name)
