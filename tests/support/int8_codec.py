"""Codecs of the tests' own: eight bits an element, and the same with error feedback."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch

from vflsim.protocol import Codec, DataError, NonFiniteError


class Int8(Codec):
    """Element-wise: the nearest multiple of ``step`` within ±127 of them; gradients pass straight through."""

    kind: Literal["int8"] = "int8"
    step: float = 0.125

    def payload_bytes(self, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        return int(np.prod(shape))

    def pack(self, x: torch.Tensor) -> bytes:
        return self._rounded(x).to(torch.int8).contiguous().cpu().numpy().tobytes()

    def unpack(self, payload: bytes, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if len(payload) != int(np.prod(shape)):
            raise DataError(f"{len(payload)} bytes", allowed=f"{int(np.prod(shape))}, one an element")
        whole = torch.from_numpy(np.frombuffer(payload, np.int8).copy()).reshape(shape)
        return whole.to(dtype) * self.step

    def through(self, x: torch.Tensor) -> torch.Tensor:
        return self._rounded(x) * self.step

    def _rounded(self, x: torch.Tensor) -> torch.Tensor:
        if x.isnan().any():
            raise NonFiniteError("a tensor with an element that is no number", remedy="a smaller learning rate")
        return (x / self.step).round().clamp(-127, 127) + 0.0


class Int8Feedback(Int8):
    """The same with error feedback: what rounding took from one tensor is added to the next."""

    kind: Literal["int8_feedback"] = "int8_feedback"  # type: ignore[assignment]
    remembers: ClassVar[bool] = True  # type: ignore[misc]
