"""Gaussian noise, by the mechanisms that scenarios name."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Literal, Self, get_args

import numpy as np
from pydantic import Field, PrivateAttr, model_validator

from vflsim.errors import NonFiniteError
from vflsim.learning.privacy.accounting import (
    EPSILONS,
    MULTIPLIERS,
    WITHIN,
    Released,
    accountant,
    epsilon_of,
    noise_multiplier_for,
    sampled_epsilon_of,
    sampled_mu_multiplier_for,
    sampled_mu_of,
    sampled_noise_multiplier_for,
)
from vflsim.learning.privacy.base import Mechanism, Plan
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.vocabulary.quantities import Count, NonNegativeNumber, PositiveNumber, Quantity


class GaussianNoise(Mechanism, ABC):
    """Clip each row to an L2 norm, then add Gaussian noise: σ = multiplier · 2 clip on every element.

    2 ``clip`` is the sensitivity of a row whose features are replaced. (VIM's Lemma 1 takes ``clip``: its σ is twice
    this multiplier for the same noise, and its ε is that of half the distance.) Sampled in floating point, the noise is
    for simulation only: an attacker who sees all its bits can learn more than ε says (Mironov 2012).
    """

    clip: PositiveNumber
    """Rows with a larger L2 norm are shrunk to it."""
    batches: Literal["known", "secret"] = "known"
    """Whether the adversary knows which samples are in a batch: ``known`` to the server that draws them, and to all
    that see row numbers. ``secret`` batches amplify privacy; they need ``training.sampling: uniform``."""
    releases: Count | None = None
    """With known batches: how often a client may release one sample in a run. One more release ends the run."""
    rounds: Count | None = None
    """How many mini-batches a client may release in a run. Without ``releases`` and ``rounds``, the stop rules say."""
    _plan: Plan | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _one_plan(self) -> Self:
        if self.releases is not None and self.rounds is not None:
            raise ValueError("releases and rounds are both given; allowed: one of them; leave one out")
        if self.releases is not None and self.secret:
            raise ValueError(
                "releases counts those of one sample, and nobody knows them of secret batches; allowed: rounds; "
                "give how many mini-batches each client releases"
            )
        return self

    @property
    def secret(self) -> bool:
        """``batches: secret``."""
        return self.batches == "secret"

    @property
    @abstractmethod
    def whole_run(self) -> bool:
        """Whether the noise is calibrated for a whole run."""

    @property
    def accountant(self) -> str:
        """dp-accounting, and what it computes."""
        return accountant(self.secret)

    @property
    def needs_plan(self) -> bool:
        """True for a whole run of unsaid length."""
        return self.whole_run and self.releases is None and self.rounds is None

    def planned(self, plan: Plan) -> Self:
        """Return a copy that knows the batches of the run."""
        copy = self.model_copy()
        copy._plan = plan
        return copy

    @property
    @abstractmethod
    def multiplier(self) -> float:
        """The noise multiplier, given or calibrated."""

    @property
    def most_batches(self) -> int | None:
        """How many mini-batches a client may release; None without a guarantee for the whole run."""
        planned = None if self._plan is None else self._plan.rounds
        return (self.rounds or planned) if self.whole_run else None

    @property
    def most_releases(self) -> int | None:
        """How often one sample may be released; None without a guarantee for the whole run, or for secret batches."""
        if self.releases is not None or self.secret or self.most_batches is None or self._plan is None:
            return self.releases
        return -(-self.most_batches // self._plan.per_epoch)

    @property
    def sensitivity(self) -> float:
        """2 C: two rows inside a ball of radius C are no farther apart."""
        return 2 * self.clip

    @property
    def sigma(self) -> float:
        """The multiplier times the sensitivity."""
        return self.multiplier * self.sensitivity

    def bounded(self, h: Tensor) -> Tensor:
        """Give h · min(1, C / ‖h‖₂), row by row (VIM Sec. 4); short rows keep their bits.

        Raises NonFiniteError for a row without a finite norm, which clipping would hide.
        """
        norms = torch.linalg.vector_norm(h, dim=1, keepdim=True)
        if not torch.isfinite(norms).all():
            raise NonFiniteError("an embedding is not finite")
        shrink: Tensor = self.clip / norms.clamp(min=self.clip)
        return h * shrink

    def noise(self, shape: tuple[int, ...], dtype: torch.dtype, bits: np.random.BitGenerator) -> Tensor:
        """Draw N(0, σ²) for every element by the inverse of the normal distribution function, one word each."""
        words = bits.random_raw(math.prod(shape)) >> np.uint64(12)
        uniforms = (words.astype(np.float64) + 0.5) * 2.0**-52  # never 0 or 1, whose inverse is infinite
        normals: Tensor = torch.special.ndtri(torch.from_numpy(uniforms))
        return (self.sigma * normals).reshape(shape).to(dtype)

    def epsilon_after(self, releases: int) -> float:
        """Give ε of that many adaptive releases with this multiplier, the batches being known."""
        return epsilon_of(self.multiplier, self.delta, releases)

    def spent(self, released: Released) -> float:
        """Give ε by the adversary: exact for known batches, an upper bound for secret ones."""
        if self.secret:
            return sampled_epsilon_of(self.multiplier, self.delta, released)
        return self.epsilon_after(released.most)

    def exceeded(self, released: Released) -> str:
        """Describe the budget of the whole run that so much exceeds."""
        most = self.most_releases
        if most is not None and released.most > most:
            return f"the noise is for {most:,} releases of a sample in a run, and training row {{row}} has had them all"
        if self.secret and self.most_batches is not None and self._over(released):
            return f"the noise is for {self.most_batches:,} mini-batches of a client in a run, and it has released them"
        return ""

    def mu_of(self, released: Released) -> float:
        """Give μ of Gaussian differential privacy: exact for known batches, that of many small ones for secret ones."""
        return sampled_mu_of(self.multiplier, released) if self.secret else math.sqrt(released.most) / self.multiplier

    @abstractmethod
    def _over(self, released: Released) -> bool:
        """Whether so much of secret batches exceeds what the noise was calibrated for."""

    def promise(self) -> str:
        """Give ε of one release, and of the whole run if it is bounded."""
        release = f"ε = {self.epsilon_after(1):.4g} (δ = {self.delta:g}) per release of a sample"
        if self.secret:
            release += " in a known batch"
            if self.most_batches is None or self._plan is None:
                return f"{release}; for a whole run by the number of a client's secret batches"
            run = self.spent(Released(0, ((self._plan.rate, 1, self.most_batches),)))
            return f"{release}; {run:.4g} for a whole run of at most {self.most_batches:,} secret batches of a client"
        if self.most_releases is None:
            return f"{release}; for a whole run more, by the number of releases of a sample"
        run = self.epsilon_after(self.most_releases)
        return f"{release}, {run:.4g} for a whole run of at most {self.most_releases:,} releases"


class Gaussian(GaussianNoise):
    """Clip each row, then add Gaussian noise: by its multiplier, or by ε per release or whole run (FedVS *Wait-DP*).

    Exactly one of ``noise_multiplier`` and ``epsilon`` is given. It protects a sample's features in what is uploaded;
    the module's text says against whom, and what it does not protect.

    Examples: ``{kind: gaussian, clip: 1, delta: 1e-5, noise_multiplier: 0.5}``, ``{kind: gaussian, clip: 1, delta:
    1e-5, epsilon: 8, per: run, releases: 20, batches: known}``, ``{kind: gaussian, clip: 1, delta: 1e-5, epsilon:
    8, per: run, rounds: 500, batches: secret}``
    """

    kind: Literal["gaussian"] = "gaussian"
    noise_multiplier: Annotated[float, Quantity(at_least=MULTIPLIERS[0], at_most=MULTIPLIERS[1])] | None = None
    """σ over the sensitivity, 2 ``clip``."""
    epsilon: Annotated[float, Quantity(at_least=EPSILONS[0], at_most=EPSILONS[1])] | None = None
    """The ε that the noise is calibrated for, together with ``per``."""
    per: Literal["release", "run"] | None = None
    """The scope of ``epsilon``: one release of a sample, or all releases in a run together (see ``rounds``)."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            count = "both" if self.epsilon is not None else "none"
            raise ValueError(
                f"{count} of noise_multiplier and epsilon {'are' if count == 'both' else 'is'} given; allowed: exactly "
                "one; give the noise itself, or the epsilon that it is for"
            )
        if self.epsilon is not None and self.per is None:
            raise ValueError(
                f"epsilon: {self.epsilon:g} has no scope; allowed: per: release, per: run; "
                "add `per: release` for each upload of a sample, or `per: run` for all of a run's together"
            )
        if self.epsilon is None and self.per is not None:
            raise ValueError(f"per: {self.per} needs epsilon; allowed: with epsilon; give epsilon, or leave out per")
        if self.per != "run" and (self.releases or self.rounds):
            raise ValueError(
                f"{'releases' if self.releases else 'rounds'} plans a whole run; allowed: with per: run; "
                "give `per: run`, or leave it out"
            )
        return self

    @property
    def whole_run(self) -> bool:
        """``per: run``."""
        return self.per == "run"

    @property
    def asked_for(self) -> str:
        """The multiplier, or ε."""
        return "noise_multiplier" if self.epsilon is None else f"epsilon per {self.per}"

    @property
    def multiplier(self) -> float:
        """The noise multiplier, given or calibrated."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        assert self.epsilon is not None, "one of them is given"
        if self.secret and self.whole_run:
            assert self._plan is not None, "a setting plans its mechanism"
            assert self.most_batches is not None, "a scenario without a plan is refused"
            return sampled_noise_multiplier_for(self.epsilon, self.delta, self._plan.rate, self.most_batches)
        return noise_multiplier_for(self.epsilon, self.delta, self.most_releases or 1)

    def _over(self, released: Released) -> bool:
        return self.epsilon is not None and self.spent(released) > self.epsilon * WITHIN


class PerturbedLocalEmbedding(GaussianNoise):
    """Add noise at every layer of a client's network: μ-Gaussian differential privacy (VAFL Sec. 4, Eq. 10, 11, Thm 6).

    u_l = σ_l(w_l u_{l−1} + b_l + Z_l), with Z_L ~ N(0, c²) at the last layer, which is affine, and uniform noise of
    standard deviation ``layer_noise`` before. c follows from μ. The theorem needs a bounded last layer: its output is
    clipped, row by row, so a sample moves it by 2 ``clip`` at most. With known batches, n releases of a sample are
    exactly √n · 2 clip / c-Gaussian private; that is c = 2 clip √n / μ. With secret ones c is that of the limit of many
    small batches (Dong, Roth and Su 2019), about Eq. 15, 2 clip N_m √K / (μ N), N_m rows in each of K batches; ε is a
    bound for these batches, μ is not.

    It protects a sample's features in what is uploaded, as ``gaussian`` does, and by Z_L alone: the noise of the inner
    layers makes the loss smoother (Thm 5), is the same when a batch is embedded again, and carries no guarantee.
    Local steps that embed anew without an upload (ADMM) have no noise.

    Examples: ``{kind: perturbed_local_embedding, clip: 1, delta: 1e-5, mu: 2, layer_noise: 0.01, releases: 20,
    batches: known}``, ``{kind: perturbed_local_embedding, clip: 1, delta: 1e-5, mu: 2, rounds: 500, batches:
    secret}``
    """

    kind: Literal["perturbed_local_embedding"] = "perturbed_local_embedding"
    mu: Annotated[float, Quantity(at_least=EPSILONS[0], at_most=EPSILONS[1])]
    """μ of the trade-off function T(N(0, 1), N(μ, 1)), for the whole run (Eq. 14)."""
    layer_noise: NonNegativeNumber | None = None
    """c_l, the standard deviation of the noise at the layers before the last; needed where there are any."""

    @property
    def inner_noise(self) -> float:
        """``layer_noise``."""
        return self.layer_noise or 0.0

    @property
    def whole_run(self) -> bool:
        """True: μ is of a whole run."""
        return True

    @property
    def asked_for(self) -> str:
        """μ."""
        return "mu per run"

    @property
    def multiplier(self) -> float:
        """c / (2 clip), calibrated."""
        if not self.secret:
            assert self.most_releases is not None, "a scenario without a plan is refused"
            return math.sqrt(self.most_releases) / self.mu
        assert self._plan is not None, "a setting plans its mechanism"
        assert self.most_batches is not None, "a scenario without a plan is refused"
        return sampled_mu_multiplier_for(self.mu, self._plan.rate, self.most_batches)

    def promise(self) -> str:
        """Give μ, and ε."""
        return f"μ = {self.mu:g} for a whole run{' in the limit of many batches' if self.secret else ''}; " + (
            super().promise()
        )

    def _over(self, released: Released) -> bool:
        return self.mu_of(released) > self.mu * WITHIN


MechanismKind = Gaussian | PerturbedLocalEmbedding
MECHANISMS: tuple[type[Mechanism], ...] = get_args(MechanismKind)
AnyMechanism = Annotated[MechanismKind, Field(discriminator="kind"), OrModule(Mechanism)]
