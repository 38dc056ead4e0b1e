"""Models that end their own process, or never end, in tests of what becomes of the others. Named by path."""

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from multiprocessing import parent_process
from pathlib import Path

from torch import Tensor, nn

BATCHES: Counter[str] = Counter()
"""How many batches this process has trained on, by flag: a model's attributes may not count."""


class Deadly(nn.Module):
    """A linear model that kills a worker in the fifth batch that it trains on, once: if it can take the file away."""

    def __init__(self, feature_shape: tuple[int, ...], embedding: int, flag: str) -> None:
        super().__init__()
        self.map, self.flag = nn.Linear(feature_shape[0], embedding), Path(flag)

    def forward(self, x: Tensor) -> Tensor:
        BATCHES[str(self.flag)] += self.training
        if BATCHES[str(self.flag)] >= 5 and parent_process() is not None and self.flag.exists():
            with suppress(FileNotFoundError):  # another worker was faster
                self.flag.unlink()
                print("these were my last words")
                os.kill(os.getpid(), signal.SIGKILL)
        return self.map(x)


class Stuck(nn.Module):
    """A linear model whose first batch in training never ends; leaves a file that says so."""

    def __init__(self, feature_shape: tuple[int, ...], embedding: int, folder: str) -> None:
        super().__init__()
        self.map, self.folder = nn.Linear(feature_shape[0], embedding), Path(folder)

    def forward(self, x: Tensor) -> Tensor:
        while self.training and self.folder.is_dir():
            (self.folder / f"stuck-{os.getpid()}").touch()
            time.sleep(0.05)
        return self.map(x)
