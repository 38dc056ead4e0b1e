"""The mechanisms, as scenarios name them."""

import math
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from vflsim.learning.privacy.accounting import (
    EPSILONS,
    MULTIPLIERS,
    WITHIN,
    Released,
    noise_multiplier_for,
    sampled_mu_multiplier_for,
    sampled_noise_multiplier_for,
)
from vflsim.learning.privacy.base import GaussianNoise, Mechanism
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.quantities import NonNegativeNumber, Quantity


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
            given = "both" if self.epsilon is not None else "none"
            raise ValueError(
                f"{given} of noise_multiplier and epsilon {'are' if given == 'both' else 'is'} given; allowed: exactly "
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
