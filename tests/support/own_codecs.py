"""Codecs of the tests' own that break their contract, each in one way."""

import zlib
from typing import ClassVar, Literal

import numpy as np
import torch

from vflsim.codecs import Codec
from vflsim.codecs.frame import from_raw, raw


class Honest(Codec):
    """Float32 on the wire."""

    kind: Literal["own"] = "own"

    def payload_bytes(self, shape, dtype):
        return 4 * int(np.prod(shape))

    def pack(self, x):
        return raw(x.to(torch.float32))

    def unpack(self, payload, shape, dtype):
        return from_raw(payload, shape, torch.float32).to(dtype)


class Cheap(Honest):
    def payload_bytes(self, shape, dtype):
        return 1


class OneShort(Honest):
    """Counts a byte too few for tensors of 36 columns."""

    def payload_bytes(self, shape, dtype):
        return super().payload_bytes(shape, dtype) - (shape[-1] == 36)


class SevenRows(Honest):
    """Cannot encode seven rows."""

    def pack(self, x):
        if len(x) == 7:
            raise RuntimeError("seven rows do not fit")
        return super().pack(x)


class Zipped(Honest):
    def pack(self, x):
        return zlib.compress(super().pack(x))

    def unpack(self, payload, shape, dtype):
        return super().unpack(zlib.decompress(payload), shape, dtype)


class Other(Honest):
    def through(self, x):
        return x + 1


class NanLost(Honest):
    def unpack(self, payload, shape, dtype):
        return super().unpack(payload, shape, dtype).nan_to_num()

    def through(self, x):
        return x.to(torch.float32).to(x.dtype)


class Narrow(Honest):
    def through(self, x):
        return x.to(torch.float16)

    def unpack(self, payload, shape, dtype):
        return super().unpack(payload, shape, torch.float16)


class Flat(Honest):
    def unpack(self, payload, shape, dtype):
        return super().unpack(payload, shape, dtype).reshape(-1)


class Noisy(Honest):
    def through(self, x):
        return x + 0 * torch.rand_like(x)


class Random(Honest):
    def pack(self, x):
        return raw(torch.rand(x.shape, generator=torch.Generator().manual_seed(np.random.randint(1 << 30))))


class InPlace(Honest):
    def pack(self, x):
        return raw(x.mul_(0.5).to(torch.float32))

    def unpack(self, payload, shape, dtype):
        return super().unpack(payload, shape, dtype)


class Stacked(Honest):
    def through(self, x):
        return self.unpack(self.pack(x), tuple(x.shape), x.dtype)

    def pack(self, x):
        return raw((x / x.nan_to_num().abs().max().clamp_min(1e-30)).to(torch.float32))


class Lossless(Honest):
    lossless: ClassVar[bool] = True


class IdleRule(Honest):
    def backward(self, gradient, x):
        return gradient * 2


class WrongRule(Honest):
    straight_through: ClassVar[bool] = False

    def backward(self, gradient, x):
        return gradient.sum()


class IdleMemory(Honest):
    def transmit(self, x, memory):
        return x, x


class Hoarder(Honest):
    remembers: ClassVar[bool] = True

    def transmit(self, x, memory):
        memory = torch.zeros_like(x) if memory is None else memory
        return self.through(x), memory.add_(x)


class Framed(Honest):
    def encode(self, envelope, tensors):
        return super().encode(envelope, tensors) + b"\0"

    def decode(self, data):
        return super().decode(data[:-1])


class Broken(Honest):
    def pack(self, x):
        raise RuntimeError("no cable")
