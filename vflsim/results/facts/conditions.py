"""What protocols differ in beside their timing: features, labels, optimisers and local steps, in ``run.json``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Conditions(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What a protocol trains with. Protocols that differ in it are not compared by their timing alone.

    ``features`` are those that the trained models see, of all ``features_in_data``. ``client_optimizers`` and
    ``server_optimizers`` are the update rules of the weights there, in words (``adam 0.01``); empty without weights.
    ``local_steps`` is how many steps a client takes on what it receives in one exchange; 0 without clients.
    """

    features: int = Field(ge=0)
    features_in_data: int = Field(ge=0)
    labels: Literal["server", "server and clients"]
    client_optimizers: tuple[str, ...]
    server_optimizers: tuple[str, ...]
    local_steps: int = Field(ge=0)
