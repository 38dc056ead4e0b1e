"""What one party of EASTER's Table II learns alone, by the pixels that it holds: the cuts that could be the paper's.

The perceptron of `scenarios/easter/table2.yaml` (256, embedding of 128, prediction net of 128) in a plain PyTorch loop:
SGD of 0.01 with momentum 0.9, batches of 128, three epochs, seed 0. Test accuracy in per cent.
Run: VFLSIM_DATA=… python benchmarks/easter_cuts.py   (--data fashion_mnist, --epochs 10)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import vflsim
from vflsim.scenario.resolve import ScenarioData

TABLE = Path(__file__).parents[1] / "scenarios" / "easter" / "table2.yaml"
SIDE = 28
"""Pixels of a row, and rows of an image."""


def cuts() -> Iterator[tuple[str, Tensor]]:
    """Yield cuts into four, and the mask (rows, columns) of a party's pixels for each."""
    row, column = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    half, quarter = SIDE // 2, SIDE // 4
    for down, across in ((0, 0), (0, 1), (1, 0), (1, 1)):
        name = f"{('upper', 'lower')[down]} {('left', 'right')[across]} quarter"
        yield name, (row // half == down) & (column // half == across)
    for block in range(4):
        yield f"rows {quarter * block + 1} to {quarter * (block + 1)}", row // quarter == block
    for block in range(4):
        yield f"columns {quarter * block + 1} to {quarter * (block + 1)}", column // quarter == block
    yield "every fourth row", row % 4 == 0
    yield "every fourth column", column % 4 == 0
    yield "every fourth pixel", (SIDE * row + column) % 4 == 1
    for start in range(2):
        yield f"every second pixel of every second row, from {start + 1}", (row % 2 == start) & (column % 2 == start)
    yield "a random quarter", (torch.randperm(SIDE**2, generator=torch.Generator().manual_seed(0)) < 196).view(SIDE, -1)


def accuracy(images: dict[str, Tensor], labels: dict[str, Tensor], mask: Tensor, epochs: int) -> float:
    """Train on the pixels of ``mask`` and return the test accuracy."""
    torch.manual_seed(0)
    x = {split: values[:, mask] for split, values in images.items()}
    model = nn.Sequential(
        nn.Linear(int(mask.sum()), 256),
        nn.ReLU(),
        nn.Linear(256, 128),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(epochs):
        for batch in torch.randperm(len(x["train"])).split(128):
            loss = nn.functional.cross_entropy(model(x["train"][batch]), labels["train"][batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        return float((model(x["test"]).argmax(1) == labels["test"]).double().mean())


def main() -> None:
    """Print a row for each cut."""
    parser = argparse.ArgumentParser(description="EASTER's Local by cut")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--epochs", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    whole = ["partition={clients: 1, by: columns}", "models.active=null", "protocols={all: {kind: synchronous}}"]
    linear = "models.client={kind: linear, embedding: 8}"
    scenario = vflsim.load(TABLE, [f"data.name={asked.data}", *whole, linear])
    data = ScenarioData(scenario).of(scenario.training)
    images = {split: data.joint[split].view(-1, SIDE, SIDE) for split in ("train", "test")}
    labels = {split: torch.as_tensor(data.labels[split]) for split in ("train", "test")}
    print(f"| cut | pixels | test accuracy after {asked.epochs} epochs |\n|---|---:|---:|")
    for name, mask in cuts():
        found = accuracy(images, labels, mask, asked.epochs)
        print(f"| {name} | {int(mask.sum())} | {100 * found:.1f} |", flush=True)


if __name__ == "__main__":
    main()
