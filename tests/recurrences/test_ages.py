"""Ages of many arrivals at once are those that the event path's books say, step by step."""

import random

import numpy as np
import pytest

from vflsim.learning.batches import BatchSequence
from vflsim.learning.learners.staleness import Staleness
from vflsim.learning.training import Training
from vflsim.recurrences.ages import ArrivalAges, BatchRows
from vflsim.recurrences.chunk import AgeSums

ROWS, CLIENTS, STEPS = 30, 5, 400


def training(batches: str, sampling: str, batch: int) -> Training:
    step = {"kind": "sgd", "lr": 0.1}
    return Training.model_validate(
        {
            "batch": batch,
            "batches": batches,
            "sampling": sampling,
            "client_optimizer": step,
            "server_optimizer": step,
        }
    )


def arrivals(t: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Clients and the numbers of their batches, (STEPS, t) each: some clients are ten times as fast as others."""
    pick = random.Random(seed)
    begun, clients, numbers = [0] * CLIENTS, [], []
    for _ in range(STEPS):
        weights = {client: pick.random() ** (client + 1) for client in range(CLIENTS)}
        chosen = sorted(weights, key=weights.__getitem__)[-t:]
        clients.append(chosen)
        numbers.append([begun[client] for client in chosen])
        for client in chosen:
            begun[client] += 1
    return np.array(clients), np.array(numbers)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("window", [1, 7, 60, STEPS])
@pytest.mark.parametrize(
    ("batches", "sampling", "batch"),
    [("shared", "shuffled", 10), ("shared", "shuffled", 8), ("shared", "uniform", 10), ("own", "shuffled", 8)],
)
def test_windows_of_steps_have_the_ages_that_single_steps_have(
    t: int, window: int, batches: str, sampling: str, batch: int
) -> None:
    said = training(batches, sampling, batch)
    parties = range(1, CLIENTS + 1) if batches == "own" else [0]
    sequences = [BatchSequence(ROWS, said, 3, party) for party in parties]
    ages, books = ArrivalAges(BatchRows(sequences), CLIENTS), Staleness(range(CLIENTS), ROWS)
    clients, numbers = arrivals(t, seed=window)
    for first in range(0, STEPS, window):
        some = slice(first, first + window)
        expected = AgeSums()
        for step in range(STEPS)[some]:
            pairs = zip(clients[step].tolist(), numbers[step].tolist(), strict=True)
            sent = [(sequences[client if batches == "own" else 0].batch(number), client) for client, number in pairs]
            groups = {(each.origin, each.index): each for each, _ in sent}
            read = [(each, range(CLIENTS)) for each in groups.values()]
            facts = books.complete([(each, [client]) for each, client in sent], read=read)
            total, count, oldest = facts.row_ages
            of_clients = np.asarray(facts.client_ages)
            expected += AgeSums((int(total), count, oldest), (int(of_clients.sum()), CLIENTS, int(of_clients.max())))
        assert ages.window(first, clients[some], numbers[some]) == expected
