"""Results whose models can be rebuilt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflsim.results.joined import JoinedResults
from vflsim.results.read import Results

if TYPE_CHECKING:
    from vflsim.trained.models import TrainedModels


class StudyResults(Results):
    """All runs of one scenario, and the models that they left."""

    def model(self, protocol: str, seed: int = 0) -> TrainedModels:
        """Rebuild the models of a run, with its weights, on the CPU.

        Raises ``ResultsError`` without such a run, and if it failed, diverged, or kept no weights.
        """
        from vflsim.trained.models import trained_models

        return trained_models(self, protocol, seed)


class ComparedResults(StudyResults, JoinedResults):
    """The runs of several studies, and the models that they left."""
