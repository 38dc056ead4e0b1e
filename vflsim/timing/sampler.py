"""The only place that turns uniforms into delays, so that a draw has the same bits whoever asks for it."""

from __future__ import annotations

from vflsim.streams import BLOCK, Uniforms
from vflsim.timing.delays import Constant, Delay


class Sampler:
    """The draws 0, 1, 2, … of one delay on the stream (seed, party, purpose), in any order."""

    def __init__(self, delay: Delay, seed: int, party: int, purpose: str) -> None:
        self._delay = delay
        self._constant = delay.value if isinstance(delay, Constant) else None  # uses no stream
        self._uniforms = Uniforms(seed, party, purpose)
        self._number = -1
        self._block: list[float] = []

    def draw(self, index: int) -> float:
        """Give draw ``index`` ≥ 0 in seconds: a function of the stream and the index alone.

        A whole block is sampled at a time: for speed, and since the last bit of np.log may depend on how many are
        sampled together.
        """
        if self._constant is not None:
            return self._constant
        number, offset = divmod(index, BLOCK)
        if number != self._number:
            self._block = self._delay.sample(self._uniforms.block(number)).tolist()
            self._number = number
        return self._block[offset]
