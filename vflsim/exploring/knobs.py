"""The knobs of ``vflsim explore``, in the words of scenario files, and the knob that an error is about."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar, get_args

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, model_validator

from vflsim.errors import VflsimError
from vflsim.scenario.document import Document, failure
from vflsim.scenario.translation import Known, problems_of
from vflsim.timing.delays import QUANTITY
from vflsim.timing.delays.base import Delay
from vflsim.timing.delays.basic import Constant, Exponential, Pareto, ShiftedExponential, Uniform
from vflsim.timing.delays.families import Gamma, LogNormal, Normal, Weibull
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.quantities import BitsPerSecond, Count, CountOrAll, Index, Seconds

MOST_CLIENTS = 256
"""Most clients of the page: it draws a bar and a row for each, and answers at once."""

PlayedDelay: TypeAlias = (
    Constant | Exponential | ShiftedExponential | Uniform | Normal | LogNormal | Gamma | Weibull | Pareto
)
PLAYED: tuple[type[Delay], ...] = get_args(PlayedDelay)
"""The kinds of delay with numbers alone as parameters, each of which can have a slider. None of them reads a file."""
Network: TypeAlias = Literal["dedicated", "fifo", "fair"]
NETWORKS: tuple[str, ...] = get_args(Network)
PROTOCOL_KEYS = ("t", "K", "T")
"""Keys of protocols that are knobs: each applies to all protocols that have it."""


def _few(clients: int) -> int:
    if clients > MOST_CLIENTS:
        raise ValueError(f"{clients} clients are too many for this page; allowed: 1 to {MOST_CLIENTS}")
    return clients


P = TypeVar("P", bound=Part)


class Knobs(Part):
    """The positions of all knobs. One without a position leaves its part of the scenario as it is.

    Example: ``{clients: 28, stragglers: 7, delay: {kind: exponential, mean: 2 s}, network: dedicated, bandwidth: 100
    Mbps, latency: 5 ms, batch: 64, t: 20, K: 4, T: 1}``
    """

    clients: Annotated[Count, AfterValidator(_few)] | None = None
    """The number of clients."""
    stragglers: Index | None = None
    """How many of them, the last ones, have the delay before every upload; the others have none."""
    delay: Annotated[PlayedDelay, Field(discriminator="kind"), QUANTITY] | None = None
    """The upload delay of stragglers."""
    network: Network | None = None
    """How messages share links."""
    bandwidth: BitsPerSecond | None = None
    """The bandwidth of everybody's link, in either direction."""
    latency: Seconds | None = None
    """The latency of everybody's link."""
    batch: CountOrAll | None = None
    """Rows of a batch."""
    t: Count | None = None
    """How many embeddings make a step of the protocols that have a ``t``."""
    K: Count | None = None
    """Segments of the protocols that have a ``K``."""
    T: Count | None = None
    """Masks of the protocols that have a ``T``."""

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.stragglers is None) != (self.delay is None):
            key = "stragglers" if self.delay is None else "delay"
            raise ValueError(f"{key} stands alone; allowed: stragglers and delay together, or neither")
        return self


def read(kind: type[P], body: Any) -> P:
    """Read knobs, or the body of a request, from plain values, quantities with or without units.

    Raises ScenarioError with every unknown key, wrong value, and what is allowed.
    """
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        problems = problems_of(error, body, Known(body, TypeAdapter(kind).json_schema))
        raise failure(problems, Document(body if isinstance(body, dict) else {})) from None


def as_said(delay: Delay) -> dict[str, Any]:
    """Return a delay in the words of scenario files, seconds with units."""
    seconds = {"mean", "shift", "low", "high", "sd", "median", "scale", "minimum", "value"}
    fields: Mapping[str, Any] = delay.model_dump(exclude_none=True)
    return {key: seconds_text(value) if key in seconds else value for key, value in fields.items()}


def seconds_text(seconds: float) -> str | float:
    """Return seconds with the unit in which they are short; the plain number if none gives its every digit back."""
    return _text(seconds, ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")), TypeAdapter(Seconds))


def bandwidth_text(rate: float) -> str | float:
    """Return a bandwidth in bit/s with the unit in which it is short, or ``unlimited``."""
    if rate == float("inf"):
        return "unlimited"
    return _text(rate, ((1e9, "Gbps"), (1e6, "Mbps"), (1e3, "kbps")), TypeAdapter(BitsPerSecond))


def _text(value: float, scales: tuple[tuple[float, str], ...], adapter: TypeAdapter[float]) -> str | float:
    scale, unit = next((pair for pair in scales if value >= pair[0]), scales[0] if value == 0 else scales[-1])
    text = f"{value / scale:.12g} {unit}"
    return text if adapter.validate_python(text) == value else value


_PLACES = (
    (re.compile(r"timing\.clients(\.\d+)?\.upload_delay\b"), "delay"),
    (re.compile(r"timing\.clients(\.\d+)?\.select\b"), "stragglers"),
    (re.compile(r"timing\.network\b"), "network"),
    (re.compile(r"timing\.(server|clients(\.\d+)?)\.link\.(up|down)\b"), "bandwidth"),
    (re.compile(r"timing\.(server|clients(\.\d+)?)\.link\.latency\b"), "latency"),
    (re.compile(r"(protocols\.[\w+-]+\.)?training\.batch\b"), "batch"),
    (re.compile(r"protocols\.[\w+-]+\.([tKT])\b"), ""),
    (re.compile(r"partition\b"), "clients"),
)
"""Keys of a scenario, and the knob that sets them (empty: the one that the key names)."""


def complaints(error: VflsimError) -> list[dict[str, Any]]:
    """Return the problems of an error: the ``text`` of each, and the ``knob`` it is about (None: no single one)."""
    head, *rest = str(error).splitlines()
    parts = [line.strip() for line in rest] if re.search(r"\b\d+ problems$", head) else [str(error)]
    return [{"knob": _knob(text), "text": text} for text in parts]


def _knob(text: str) -> str | None:
    return next(_knobs_in(text), None)


def _knobs_in(text: str) -> Iterator[str]:
    first = re.match(r"(\w+)\b", text)
    if first and first[1] in Knobs.model_fields:
        yield first[1]
    for place, knob in _PLACES:
        if match := place.match(text):
            yield knob or match[1]
