"""What ``run.json`` says of a run beside its numbers: one class for each block of fields."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from vflsim.learning.learners.releases import Releases
from vflsim.learning.privacy.base import Mechanism
from vflsim.learning.privacy.blinding import BlindedSum
from vflsim.learning.privacy.mechanisms import GaussianNoise
from vflsim.streams import few, party_name
from vflsim.tables import DataTable
from vflsim.timing.capacity import AnyCapacity, Link, capacity_profile
from vflsim.world.networks import FLUID, AnyNetwork, AnyTransport


class Conditions(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What a protocol trains with. Protocols that differ in it are not compared by their timing alone.

    ``features`` are those that the trained models see, of all ``features_in_data``. ``client_optimizers`` and
    ``server_optimizers`` are the update rules of the weights there, in words (``adam 0.01``); empty without weights.
    ``local_steps`` is how many steps a client takes on what it receives in one exchange; 0 without clients.
    ``party_dropout`` is the probability with which a step leaves a client out on purpose.
    """

    features: int = Field(ge=0)
    features_in_data: int = Field(ge=0)
    labels: Literal["server", "server and clients"]
    client_optimizers: tuple[str, ...]
    server_optimizers: tuple[str, ...]
    local_steps: int = Field(ge=0)
    party_dropout: float = Field(default=0.0, ge=0, le=1)


CONDITIONS_TITLE = "What differs beside timing"
_HEADER = ("protocol", "features used", "labels at", "optimiser of the clients", "of the server", "local steps")
_IMPORTANCE = 3, 4, 5, 1, 2
_CONDITIONS_NOTE = (
    "Local steps: the steps of a client on what it receives in one exchange. Optimisers: learning rate, then the rest."
)


def conditions_table(by_name: Mapping[str, Conditions]) -> DataTable:
    """Tabulate the conditions of protocols, by their names: a row for each."""
    drops = any(each.party_dropout for each in by_name.values())
    rows = [
        (
            name,
            f"{each.features:,} of {each.features_in_data:,}",
            each.labels,
            "; ".join(each.client_optimizers) or "—",
            "; ".join(each.server_optimizers) or "—",
            str(each.local_steps or "—"),
            *([f"{each.party_dropout:g}"] if drops else []),
        )
        for name, each in by_name.items()
    ]
    header = (*_HEADER, *(["party dropout"] if drops else []))
    importance = (0, *range(len(_HEADER), len(header)), *_IMPORTANCE)
    return DataTable(header, rows, CONDITIONS_TITLE, [_CONDITIONS_NOTE], (0, 2, 3, 4), importance=importance)


Rates = tuple[tuple[int, int, float], ...]
"""(first party, last party, highest rate of their links in bit/s); unlimited links are left out."""


class NetworkFacts(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The network of a run, and how its messages begin to move."""

    kind: str
    transport: AnyTransport = FLUID
    up: Rates = ()
    down: Rates = ()

    @classmethod
    def of(cls, network: AnyNetwork, links: Sequence[Link], transport: AnyTransport = FLUID) -> NetworkFacts:
        """Collect the facts from the links of all parties, the server's first."""
        return cls(
            kind=network.kind,
            transport=transport,
            up=_rates(_highest([link.up for link in links])),
            down=_rates(_highest([link.down for link in links])),
        )

    def rates(self, direction: Literal["up", "down"], parties: Sequence[int]) -> list[float]:
        """Return the highest rates of these parties' links in bit/s, inf without a limit."""
        known = self.up if direction == "up" else self.down
        each = {party: next((rate for first, last, rate in known if first <= party <= last), math.inf)
                for party in {*parties}}  # fmt: skip
        return [each[party] for party in parties]


def _highest(capacities: Sequence[AnyCapacity]) -> list[float]:
    known = {id(capacity): capacity for capacity in capacities}  # alike parties share one
    highest = {key: capacity_profile(capacity).highest for key, capacity in known.items()}
    return [highest[id(capacity)] for capacity in capacities]


def _rates(highest: Sequence[float]) -> Rates:
    rates: list[tuple[int, int, float]] = []
    for rate, parties in groupby(enumerate(highest), key=lambda pair: pair[1]):
        numbers = [party for party, _ in parties]
        if rate < math.inf:
            rates.append((numbers[0], numbers[-1], rate))
    return tuple(rates)


class CodecFacts(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What a codec with a range, or with latent noise, did to the tensors of one run.

    ``saturated`` of ``elements`` sent lay beyond its range; ``parties`` has those that sent any, with their number.
    Evaluations without virtual time do not count. ``promise`` states what latent noise guarantees; empty without any.
    """

    kind: str
    elements: int = Field(ge=0)
    saturated: int = Field(ge=0)
    parties: dict[str, NonNegativeInt] = Field(default_factory=dict)
    promise: str = ""

    @classmethod
    def of(cls, kind: str, counts: Mapping[str, tuple[int, int]], promise: str) -> CodecFacts | None:
        """Make the facts from ``counts``, saturated and sent elements by party; None where there are none."""
        elements = sum(sent for _, sent in counts.values())
        if not elements and not promise:
            return None
        parties = {party: saturated for party, (saturated, _) in counts.items() if saturated}
        return cls(kind=kind, elements=elements, saturated=sum(parties.values()), parties=parties, promise=promise)

    def sentence(self) -> str:
        """Say how much saturated, and whose."""
        clients = few([f"{party} {count:,}" for party, count in self.parties.items()])
        return f"{self.saturated:,} of {self.elements:,} elements saturated ({self.kind}): {clients}"


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


class BlindingFacts(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The blinding of one run.

    Embeddings are integers modulo 2^``bits`` with ``fraction`` bits after the point, and no element exceeds
    ``largest``. ``rounds_missing`` rounds lacked the embedding of some client, ``lacked`` counts them by client, and
    ``missing`` is what happened then. ``context`` is the digest of what the run depends on, to which its masks are
    bound.
    """

    bits: int
    fraction: int
    missing: Literal["wait", "skip", "stop"]
    largest: float = Field(gt=0)
    rounds_missing: int = Field(default=0, ge=0)
    lacked: dict[PositiveInt, PositiveInt] = Field(default_factory=dict)
    context: str = ""

    @classmethod
    def of(cls, group: BlindedSum, rows: Sequence[Mapping[str, Any]]) -> BlindingFacts:
        """Compute the facts from the rows of the table of missing masks."""
        lacked = Counter(client for row in rows for client in row["clients"])
        return cls(
            bits=group.blinding.bits,
            fraction=group.blinding.fraction,
            missing=group.blinding.missing,
            largest=group.largest,
            rounds_missing=len(rows),
            lacked=dict(sorted(lacked.items())),
            context=group.context,
        )

    def sentence(self) -> str:
        """Say how many rounds lacked a client's embedding, whose, and what happened then."""
        clients = few([f"{party_name(client)} in {count:,}" for client, count in self.lacked.items()])
        rounds = f"{self.rounds_missing:,} round{'' if self.rounds_missing == 1 else 's'}"
        return f"{rounds} lacked a blinded embedding: {clients} (missing: {self.missing})"


WORRYING = 0.5
"""Share of a delay's variance in the slowest draw of a run above which Student's t covers too seldom."""


class HeavyTail(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The delay of a run with the heaviest tail: the activity (``upload delay``), its ``kind`` of law, and whose it is.

    ``share`` of the variance lies in the slowest of ``draws``, the run's rounds or its cycles of bursts
    (:func:`~vflsim.timing.laws.order.tail_share`). ``infinite``: there is no finite variance.
    """

    activity: str
    kind: str
    draws: float = Field(ge=0)
    clients: tuple[int, ...] = Field(min_length=1)
    share: float = Field(ge=0, le=1)
    infinite: bool = False

    @property
    def worrying(self) -> bool:
        """Whether means over seeds are far from normal."""
        return self.share > WORRYING


class StalledClient(BaseModel, frozen=True, extra="forbid"):
    """A client that is up and takes part, but waits in vain.

    It has waited for message ``kind`` of ``round`` since ``since_s`` (s). ``rounds`` rounds have been completed since,
    and no message or work in progress can end the wait.
    """

    client: int = Field(ge=1)
    kind: str
    round: int
    since_s: float = Field(ge=0)
    rounds: int = Field(ge=1)

    def sentence(self) -> str:
        """Describe the wait in a sentence."""
        return (
            f"client {self.client} has waited for {self.kind!r} of round {self.round} since {self.since_s:.6g} s; "
            f"{self.rounds:,} rounds have been completed since, and nothing under way can answer it"
        )


def stalled_note(stalled: Sequence[StalledClient]) -> str:
    """Describe a run's stalled clients (at least one): the first in full, then the number of others."""
    more = "" if len(stalled) == 1 else f" (and {len(stalled) - 1} more stalled: see run.json)"
    return stalled[0].sentence() + more
