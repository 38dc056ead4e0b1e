"""Which parties the server leaves out of training steps at random: see ``training.dropout``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vflsim.learning.batches import Batch
from vflsim.streams import SERVER, generator
from vflsim.vocabulary.on_demand import Tensor, torch


@dataclass(frozen=True, slots=True)
class PartyDropout:
    """Which of the parties of a server are left out of which batch: a function of seed and batch.

    ``active``: the first of the parties is the server itself, which is never left out.
    """

    rate: float
    seed: int
    active: bool = False

    def there(self, batch: Batch, parties: int, device: torch.device | str) -> Tensor:
        """Return which parties a step on this batch uses, (parties,) of bool.

        Example: ``PartyDropout(0.2, seed=0).there(batch, 4, "cpu").any()``
        """
        draws = generator(self.seed, SERVER, f"dropout/{batch.origin}/{batch.index}").random(parties)
        kept = draws >= self.rate
        kept[0 if self.active else int(np.argmax(draws))] = True
        return torch.from_numpy(kept).to(device)
