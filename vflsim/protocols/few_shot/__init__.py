"""One-shot and few-shot VFL: two or three uploads in all, and training at clients in between."""

from vflsim.protocols.few_shot.protocol import FewShot

__all__ = ["FewShot"]
