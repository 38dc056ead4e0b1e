"""What every mechanism can do that bounds and perturbs embeddings before their client uploads them.

**What they protect.** The features of one training sample at one client, against anybody who sees this client's uploads
(the server, others that it shares them with), whatever else these know: all other samples, the weights, the labels.

**What they do not.** Labels, and who is in the data. The weights of the client's model: they learn from the samples
without noise, and shape the embeddings of other samples; an ε for one sample takes them as given. A model that is
published. Test rows: evaluations are free of noise. A sample at several clients: what these release adds up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from pydantic import AfterValidator

from vflsim.learning.privacy.accounting import Released
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.vocabulary.quantities import PositiveNumber
from vflsim.vocabulary.trial import Trial, is_any, is_number


def _below_one(delta: float) -> float:
    if delta >= 1:
        raise ValueError(f"{delta:g} is out of range; allowed: a number above 0 and below 1, say 1e-5")
    return delta


@dataclass(frozen=True)
class Plan:
    """The batches of a run: how much of the training rows is in one, and how many make an epoch.

    ``rounds`` is how many each client will release by the stop rules; None where only a run can tell.

    Example::

        Plan(rate=0.1, per_epoch=10, rounds=200).rounds  # 200
    """

    rate: float
    per_epoch: int
    rounds: int | None


class Mechanism(Part, ABC):
    """Bounds every row of an embedding, then adds noise: the rows are independent of each other.

    The guarantee is about neighbouring data sets that differ in *one sample's features at one client*, replaced by any
    others. Parties that have aligned their samples know who takes part; a sample's features are the secret.

    Example of a class of your own, with the noise of Laplace and ε for each release. A scenario names it by
    ``mechanism: {kind: module, path: "mine:Laplace", clip: 1, epsilon: 4, delta: 1e-9}``::

        class Laplace(Mechanism):
            kind: Literal["laplace"] = "laplace"
            clip: PositiveNumber
            epsilon: PositiveNumber

            @property
            def sensitivity(self) -> float:
                return 2 * self.clip

            @property
            def sigma(self) -> float:
                return math.sqrt(2) * self.sensitivity / self.epsilon

            def bounded(self, h: torch.Tensor) -> torch.Tensor:
                return h * (self.clip / h.abs().sum(1, keepdim=True).clamp(min=self.clip))

            def noise(
                self, shape: tuple[int, ...], dtype: torch.dtype, bits: np.random.BitGenerator
            ) -> torch.Tensor:
                drawn = np.random.Generator(bits).laplace(0.0, self.sensitivity / self.epsilon, shape)
                return torch.from_numpy(drawn).to(dtype)

            def spent(self, released: Released) -> float:
                return self.epsilon_after(released.most)

            def epsilon_after(self, releases: int) -> float:
                return releases * self.epsilon

            def promise(self) -> str:
                return f"ε = {self.epsilon:g} per release of a sample; for a whole run as often"
    """

    kind: str
    """The name of this kind, as scenarios write it."""
    delta: Annotated[PositiveNumber, AfterValidator(_below_one)]
    """δ of (ε, δ): the probability that ε does not cover. Well below 1 / the number of samples."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """The most that one bounded row can move (L2) when its sample's features are replaced."""

    @property
    @abstractmethod
    def sigma(self) -> float:
        """The standard deviation of the noise on each element."""

    @property
    def inner_noise(self) -> float:
        """The standard deviation of noise at the layers before the last of a client's network; 0 for none."""
        return 0.0

    @property
    def secret(self) -> bool:
        """Whether ε relies on an adversary that does not know which samples are in a batch."""
        return False

    @property
    def needs_plan(self) -> bool:
        """Whether the noise follows from the number of rounds that the stop rules allow."""
        return False

    def planned(self, plan: Plan) -> Self:
        """Return a copy that knows the batches of the run."""
        return self

    @abstractmethod
    def spent(self, released: Released) -> float:
        """Give the ε of what one client has released, at ``delta``."""

    def exceeded(self, released: Released) -> str:
        """Describe the budget that so much exceeds, with ``{row}`` for the latest training row; empty for none."""
        return ""

    @abstractmethod
    def bounded(self, h: Tensor) -> Tensor:
        """Bound every row of ``h``, (rows, width) → the same shape; differentiable."""

    @abstractmethod
    def noise(self, shape: tuple[int, ...], dtype: torch.dtype, bits: np.random.BitGenerator) -> Tensor:
        """Draw the noise of one release from the raw words of ``bits``."""

    @abstractmethod
    def epsilon_after(self, releases: int) -> float:
        """Give ε of that many releases together, at ``delta``."""

    @abstractmethod
    def promise(self) -> str:
        """Describe the guarantee before any run, in words."""

    @property
    def asked_for(self) -> str:
        """What the noise follows from, in words."""
        return "keys of its own"

    @property
    def accountant(self) -> str:
        """Where ε comes from, for the records."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    def mu_of(self, released: Released) -> float | None:
        """Give μ of Gaussian differential privacy; None where it has none."""
        return None

    def _contract(self, trial: Trial) -> None:
        if self.needs_plan:
            trial.part = self.planned(Plan(rate=0.1, per_epoch=10, rounds=100))
            return trial.part._contract_planned(trial)
        return self._contract_planned(trial)

    def _contract_planned(self, trial: Trial) -> None:
        trial.fact("sensitivity", is_number(above=0), "a number above 0")
        for key in ("sigma", "inner_noise"):
            trial.fact(key, is_number(least=0), "a number of at least 0")
        for key in ("secret", "needs_plan"):
            trial.fact(key, is_any(bool), "True or False")
        promise = trial.ask("promise")
        is_text = isinstance(promise, str) and promise != ""
        trial.must(is_text, f"{trial.name}.promise returned {promise!r}", "the guarantee in words", "promise")
        for dtype in (torch.float64, torch.float32):
            self._contract_of_rows(trial, dtype)
            self._contract_of_noise(trial, dtype)
        before = -1.0
        for releases in (0, 1, 2, 10, 100):
            released = Released(releases, ((0.1, 1, releases),) if releases else ())
            for method, argument in (("epsilon_after", releases), ("spent", released)):
                epsilon, what = trial.ask(method, argument), f"{trial.name}.{method} is"
                fits = is_number(least=0)(epsilon)
                trial.must(fits, f"{what} {epsilon!r} for {releases} releases", "a number of at least 0", method)
                trial.must(releases or not epsilon, f"{what} {epsilon:g} for no release", "0", method)
            what = f"{trial.name}.spent falls to {epsilon:g} with {releases} releases"
            trial.must(epsilon >= before, what, "no less for more releases", "spent")
            before = epsilon

    def _contract_of_rows(self, trial: Trial, dtype: torch.dtype) -> None:
        draw, name = torch.Generator().manual_seed(1), f"{trial.name}.bounded"
        sizes = torch.logspace(-3, 3, _ROWS, dtype=dtype)[:, None] * self.sensitivity
        rows = sizes * torch.randn(_ROWS, _WIDTH, generator=draw, dtype=dtype)
        bounded = trial.ask("bounded", rows)
        trial.must_be_tensor("bounded", bounded, rows.shape, dtype)
        leaf = rows.clone().requires_grad_()
        out = self.bounded(leaf)
        smooth = out.requires_grad and bool(torch.isfinite(torch.autograd.grad(out.sum(), leaf)[0]).all())
        trial.must(smooth, f"{name} has no finite gradient", "differentiable in the rows", "bounded")
        alone = torch.cat([self.bounded(row) for row in torch.split(rows, 1)])
        same = torch.allclose(alone, bounded, rtol=1e-5, atol=0.0)
        trial.must(same, f"{name} gives a row other values among other rows", "each row by itself", "bounded")
        farthest, most = float(torch.cdist(bounded.double(), -bounded.double()).max()), self.sensitivity
        what = f"two bounded rows of {trial.name} are {farthest:.6g} apart, and sensitivity is {most:.6g}"
        trial.must(farthest <= most * (1 + 1e-5), what, "rows that are no farther apart than that (L2)", "bounded")

    def _contract_of_noise(self, trial: Trial, dtype: torch.dtype) -> None:
        def drawn(key: int) -> Tensor:
            return self.noise(shape, dtype, np.random.Philox(key=key))

        shape, name = (_DRAWS // _WIDTH, _WIDTH), f"{trial.name}.noise"
        noise = trial.ask("noise", 1, where="for the same bits", call=drawn)
        trial.must_be_tensor("noise", noise, shape, dtype)
        trial.must(bool(torch.isfinite(noise).all()), f"{name} is not finite", "finite", "noise")
        other = not self.sigma or not torch.equal(noise, drawn(2))
        trial.must(other, f"{name} is the same for other bits", "numbers that follow from `bits`", "noise")
        size = float(noise.double().square().mean().sqrt())
        what = f"{noise.numel():,} draws of {name} have the standard deviation {size:.6g}"
        trial.must(abs(size - self.sigma) <= _OFF * self.sigma, what, f"sigma, {self.sigma:.6g}", "noise")


_ROWS, _WIDTH, _DRAWS = 16, 5, 1 << 16
_OFF = 0.05
"""By how much the noise of so many draws may miss its standard deviation: over five times what Laplace noise may."""
