from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"

BASE = """\
name: base
data:
  name: digits
partition:
  clients: 4
  by: columns
models:
  client: {kind: linear, embedding: 8}
  aggregate: mean
  server: {kind: linear}
training:
  batch: 32
  client_optimizer: {kind: sgd, lr: 0.1}
  server_optimizer: {kind: sgd, lr: 0.1}
timing:
  server: {compute: 1 ms}
  clients:
    - {select: all, compute: 2 ms, link: {up: 300 Mbps}}
    - {select: 3..N, upload_delay: {kind: exponential, mean: 2 + i}}
protocols:
  wait: {kind: synchronous}
  two: {kind: t_synchronous, t: 2}
stop: {time: 60 s}
evaluate: {every: 5 s}
seeds: [0, 1]
"""


@pytest.fixture
def base() -> str:
    """A small, valid scenario."""
    return BASE


@pytest.fixture
def quickstart() -> Path:
    return QUICKSTART
