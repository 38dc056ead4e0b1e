"""Privacy in ``run.json``: the noise, how often samples were released, and the resulting ε."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import numpy as np
from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from vflsim.learning.privacy.base import GaussianNoise, Mechanism
from vflsim.learning.privacy.releases import Releases

NEIGHBOURS = "two data sets that differ in one sample's features at one client, replaced by any others"
ADVERSARIES = {
    "known": "sees every upload of a client, and knows which samples are in a batch",
    "secret": "sees every upload of a client, and does not know which samples are in a batch",
}


class PrivacyFacts(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The guarantee of one run against its ``adversary``.

    ``epsilon_release`` covers one release of one sample, in a known batch. ``epsilon_run`` covers all releases of the
    client that spent most, and is the last ``epsilon`` of the metrics: against an adversary that knows the batches, of
    ``releases`` of a sample, the most often that any client released any; against one that does not, of ``batches``
    mini-batches. ``mu_run`` is its μ of Gaussian differential privacy: exact for known batches, for secret ones that of
    the limit of many small batches, and no bound. All take the weights of the client's model as given. But these
    weights depend on the samples, and shape the embeddings of others. ``epsilon_client`` covers that too, and in fact
    all training rows of a client together, whatever the adversary knows: it counts ``rows_released``, the most rows
    that any client released, including repeats. ``clip`` is the L2 norm that rows are shrunk to, None where a mechanism
    of the user's bounds them otherwise; ``noise_multiplier`` is ``sigma`` over ``sensitivity``. Evaluations are not
    part of the protocol and do not count.
    """

    mechanism: str
    clip: PositiveFloat | None
    sensitivity: PositiveFloat
    noise_multiplier: NonNegativeFloat
    sigma: NonNegativeFloat
    delta: float = Field(ge=0, lt=1)
    neighbours: str = NEIGHBOURS
    adversary: str = ADVERSARIES["known"]
    asked_for: str
    epsilon_release: NonNegativeFloat
    releases: NonNegativeInt
    batches: NonNegativeInt | None = None
    epsilon_run: NonNegativeFloat
    mu_run: NonNegativeFloat | None = None
    layer_noise: NonNegativeFloat = 0.0
    rows_released: NonNegativeInt
    epsilon_client: NonNegativeFloat
    amplification_by_subsampling: Literal["none", "uniform batches without replacement"] = "none"
    accountant: str
    sampling: str = "floating point: for simulation, not safe against attacks on its bits"

    @classmethod
    def of(cls, mechanism: Mechanism, clients: Iterable[Releases]) -> PrivacyFacts:
        """Compute the facts from what each client released."""
        each = list(clients)
        releases = max((client.released.most for client in each), default=0)
        rows = max((int(np.sum(client.counts)) for client in each), default=0)
        mus = [mu for client in each if (mu := mechanism.mu_of(client.released)) is not None]
        mu = max(mus, default=math.inf if each else 0.0)
        sigma, sensitivity = mechanism.sigma, mechanism.sensitivity
        return cls(
            mechanism=mechanism.kind,
            clip=mechanism.clip if isinstance(mechanism, GaussianNoise) else None,
            sensitivity=sensitivity,
            noise_multiplier=mechanism.multiplier if isinstance(mechanism, GaussianNoise) else sigma / sensitivity,
            sigma=sigma,
            delta=mechanism.delta,
            adversary=ADVERSARIES["secret" if mechanism.secret else "known"],
            asked_for=mechanism.asked_for,
            epsilon_release=mechanism.epsilon_after(1),
            releases=releases,
            batches=max((client.released.batches for client in each), default=0),
            epsilon_run=max((client.epsilon for client in each), default=0.0),
            mu_run=mu if math.isfinite(mu) else None,
            layer_noise=mechanism.inner_noise,
            rows_released=rows,
            epsilon_client=mechanism.epsilon_after(rows),
            amplification_by_subsampling="uniform batches without replacement" if mechanism.secret else "none",
            accountant=mechanism.accountant,
        )

    def sentence(self) -> str:
        """State the guarantee in one sentence."""
        run = f"{self.epsilon_run:.4g} for the {self.releases:,} releases of a sample in the whole run"
        amplified = "without amplification by sub-sampling"
        if self.amplification_by_subsampling != "none":
            run = f"{self.epsilon_run:.4g} for the {self.batches:,} mini-batches of a client in the whole run"
            amplified = "if nobody who sees the uploads knows which samples are in a batch"
        return (
            f"ε = {self.epsilon_release:.4g} (δ = {self.delta:g}) per release of a sample, {run}, client weights taken "
            f"as given and {amplified}; {self.epsilon_client:.4g} for all that a client holds."
        )
