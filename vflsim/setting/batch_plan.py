"""The share of the data that a round takes: mini-batches, passes over the data, and messages."""

from __future__ import annotations

from vflsim.learning.batches import BatchSequence
from vflsim.learning.training import Training
from vflsim.streams import SHARED


class BatchPlan:
    """Mini-batches that all parties share unless they step independently; a message from and to every client a round.

    ``together``: a step is on all clients' embeddings of a batch, and an epoch is a pass of the steps over the data.
    Else each embedding counts by itself, and an epoch is as many of them as one pass of all clients has.

    Example::

        class TwoTrips(BatchPlan):
            def messages(self, clients: int) -> int:
                return 4 * clients


        TwoTrips().messages(clients=10)  # 40
    """

    def __init__(self, together: bool = True) -> None:
        self.together = together

    def batches(self, rows: int, training: Training, seed: int) -> BatchSequence:
        """Make the mini-batches of ``rows`` training rows that all parties share. Raises ValueError if it cannot."""
        return BatchSequence(rows, training.model_copy(update={"batches": "shared"}), seed, SHARED)

    def epochs(self, rounds: float, embeddings_used: float, clients: int, batches_per_epoch: int) -> float:
        """Return the passes over the training data after this many server steps and used embeddings."""
        return rounds / batches_per_epoch if self.together else embeddings_used / (clients * batches_per_epoch)

    def messages(self, clients: int) -> int:
        """Return about how many messages a round takes."""
        return 2 * clients
