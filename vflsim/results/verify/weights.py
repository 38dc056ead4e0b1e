"""Rules about the weights of a run: whose they are, their shapes, and finite values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import torch

from vflsim.codecs.frame import Spec
from vflsim.results.read import StoredRun
from vflsim.results.store.write import SEED, WEIGHTS
from vflsim.results.verify.frames import SHOWN
from vflsim.streams import SERVER, party_name


def weight_problems(run: StoredRun, expected: Mapping[str, Spec] | None) -> Iterator[str]:
    """Yield a sentence for every weight that the run cannot have left; ``expected`` are the scenario's, if known.

    Raises ResultsError if the file is damaged.
    """
    weights, seed = run.weights(), run.weights_seed()
    if seed != str(run.seed):
        yield f"{WEIGHTS}: {SEED} is {seed or 'absent'}, and the run's is {run.seed}"
    if run.info.timing_only:
        if weights:
            yield f"{WEIGHTS}: has {next(iter(weights))}, and timing alone leaves no weights"
        return
    yield from islice(_strange(run, weights, expected), SHOWN)


def _strange(run: StoredRun, weights: Mapping[str, torch.Tensor], expected: Mapping[str, Spec] | None) -> Iterator[str]:
    parties = {party_name(party) for party in (SERVER, *run.info.participants)}
    for name, tensor in weights.items():
        if name.partition(".")[0] not in parties:
            yield f"{WEIGHTS}: {name} is of no party of the run"
        if not run.failed and tensor.is_floating_point() and not (finite := tensor.isfinite()).all():
            value = tensor[~finite].flatten()[0].item()
            yield f"{WEIGHTS}: {name} has the value {value}, and must be finite: the run {run.info.status}"
        if expected is not None and name in expected and expected[name] != (tuple(tensor.shape), tensor.dtype):
            wanted = _described(*expected[name])
            yield f"{WEIGHTS}: {name} is {_described(tuple(tensor.shape), tensor.dtype)}, the scenario's is {wanted}"
    if expected is not None:
        for name in () if run.failed else expected.keys() - weights.keys():
            yield f"{WEIGHTS}: {name} is missing, which the scenario's models have"
        for name in weights.keys() - expected.keys():
            yield f"{WEIGHTS}: {name} is none of the weights of the scenario's models"


def _described(shape: tuple[int, ...], dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')} of shape {shape}"
