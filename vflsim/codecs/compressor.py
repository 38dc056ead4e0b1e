"""The base class of compressors: lossy codecs, with error feedback on request."""

from __future__ import annotations

from vflsim.codecs.base import Codec


class Compressor(Codec):
    """A lossy codec. Its payload holds all that its decoder needs, the key of its random numbers included."""

    error_feedback: bool = False
    """Whether what one tensor loses is added to the next one of the same sender, receiver, message kind and name."""

    @property
    def remembers(self) -> bool:
        """Whether there is error feedback."""
        return self.error_feedback
