"""Compressors written anew in numpy: the oracle of the tests of compressed training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflsim.streams import stream_key

Compress = Callable[[Tensor, int, str, int], Tensor]
"""What arrives of a tensor, of a party, message kind (and the client that gets it first) and name, in a round."""


def exactly(x: Tensor, party: int, name: str, t: int) -> Tensor:
    return x


def quantised(x: Tensor, party: int, name: str, t: int) -> Tensor:
    """Four bits with subtractive dither, in numpy: levels of the range, Philox for the t-th tensor."""
    numbers = x.numpy().ravel()
    least, step = numbers.min(), (numbers.max() - numbers.min()) / 15
    key = stream_key(0, party, f"codec.{name}/{t}") & 2**64 - 1
    dither = (np.random.Philox(key=key).random_raw(len(numbers)) >> np.uint64(11)) * 2.0**-53
    levels = np.clip(np.floor((numbers - least) / step + dither), 0, 15)
    return torch.from_numpy(least + step * (levels - (dither - 0.5))).reshape(x.shape)


def sparse(x: Tensor, party: int, name: str, t: int) -> Tensor:
    """The two largest numbers of each row."""
    kept = torch.zeros_like(x)
    for row, new in zip(x.reshape(-1, x.shape[-1]), kept.reshape(-1, x.shape[-1]), strict=True):
        for place in np.argsort(-row.abs().numpy(), kind="stable")[:2]:
            new[place] = row[place]
    return kept


def rounded(x: Tensor, party: int, name: str, t: int) -> Tensor:
    """Whole numbers up, ties to even; messages to clients as they are."""
    return torch.from_numpy(np.clip(np.rint(x.numpy()), -127, 127)) if party else x


def signs(x: Tensor, party: int, name: str, t: int) -> Tensor:
    """±1 up; messages to clients as they are."""
    return torch.from_numpy(np.where(x.numpy() >= 0, 1.0, -1.0)) if party else x


def half(x: Tensor, party: int, name: str, t: int) -> Tensor:
    """Half precision, both ways, from float64 through float32, as PyTorch casts."""
    return torch.from_numpy(x.numpy().astype(np.float32).astype(np.float16).astype(np.float64))


CODECS: dict[str, tuple[Any, Compress]] = {
    "exact": ("plain", exactly),
    "quantised": ({"kind": "scalar_quantiser", "bits": 4}, quantised),
    "rounded": ("round", rounded),
    "signs": ("binarise", signs),
    "half": ("float16", half),
    "sparse": ({"kind": "top_k", "count": 2}, sparse),
}
