"""What one writes without vflsim: Fashion-MNIST, all features in one place, ten epochs, in bare PyTorch.

The network, batches, learning rates and evaluations of ``wait`` in scenarios/fashion_mnist_stragglers.yaml. Timed by
benchmarks/whole_process.py. Run: python benchmarks/bare_centralised.py FOLDER_OF_FASHION_MNIST [EPOCHS]
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

EPOCHS, BATCH = 10, 256


def images(file: Path) -> torch.Tensor:
    """The pixels of an IDX file, a row an image."""
    return torch.from_numpy(
        np.frombuffer(bytearray(gzip.decompress(file.read_bytes())[16:]), np.uint8).reshape(-1, 784)
    ).float()


def labels(file: Path) -> torch.Tensor:
    """The classes of an IDX file."""
    return torch.from_numpy(np.frombuffer(gzip.decompress(file.read_bytes())[8:], np.uint8).astype(np.int64))


def main(folder: Path, epochs: int = EPOCHS) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = images(folder / "train-images-idx3-ubyte.gz"), labels(folder / "train-labels-idx1-ubyte.gz")
    x_test, y_test = images(folder / "t10k-images-idx3-ubyte.gz"), labels(folder / "t10k-labels-idx1-ubyte.gz")
    deviation, mean = torch.std_mean(x, 0)
    for each in (x, x_test):
        each.sub_(mean).div_(deviation.clamp(min=1e-8))
    bottom, top = (
        nn.Linear(784, 64),
        nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    model, loss_of = nn.Sequential(bottom, top), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(
        [
            {"params": bottom.parameters(), "lr": 1 / 28, "momentum": 0.5},
            {"params": top.parameters(), "lr": 0.2, "momentum": 0.9},
        ]
    )
    for epoch in range(epochs + 1):
        with torch.no_grad():
            output = model(x_test)
            accuracy = float((output.argmax(1) == y_test).float().mean())
        print(f"epoch {epoch:2}: test loss {float(loss_of(output, y_test)):.4f}, test accuracy {accuracy:.4f}")
        for ids in torch.randperm(len(x)).split(BATCH) if epoch < epochs else ():
            loss = loss_of(model(x[ids]), y[ids])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
