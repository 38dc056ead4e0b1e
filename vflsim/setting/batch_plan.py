"""The share of the data that a round takes: mini-batches, passes over the data, and messages."""

from __future__ import annotations

from vflsim.learning.batches import BatchSequence
from vflsim.learning.training import Training
from vflsim.streams import SHARED


class BatchPlan:
    """Rounds on mini-batches that all parties share: one message from and one to every client in a round.

    Example::

        class TwoTrips(BatchPlan):
            def messages(self, clients: int) -> int:
                return 4 * clients


        TwoTrips().messages(clients=10)  # 40
    """

    def batches(self, rows: int, training: Training, seed: int) -> BatchSequence:
        """Make the mini-batches of ``rows`` training rows that all parties share. Raises ValueError if it cannot."""
        return BatchSequence(rows, training.model_copy(update={"batches": "shared"}), seed, SHARED)

    def epochs(self, rounds: int, embeddings_used: int, clients: int, batches_per_epoch: int) -> float:
        """Return the passes over the training data after this many server steps and used embeddings."""
        return rounds / batches_per_epoch

    def messages(self, clients: int) -> int:
        """Return about how many messages a round takes."""
        return 2 * clients
