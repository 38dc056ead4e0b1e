"""The check of protocols whose server has to hold features."""

from __future__ import annotations

from vflsim.protocols.base import CheckContext


def need_features(context: CheckContext) -> None:
    """Raise ``ValueError`` if the active party holds no features."""
    if context.active is None:
        raise ValueError(
            "the active party has an embedding net, and the server holds no features; "
            "set partition.active: true and models.active"
        )
