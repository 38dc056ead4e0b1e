"""The reasons for the duration of rounds: the clients that they wait for, and activities on their critical path."""

from __future__ import annotations

from vflsim.analysis.rounds import numbered
from vflsim.plotting.numbers import Numbers
from vflsim.vocabulary.amounts import quantity

_MOST = 0.9
"""Share of waits that the clients named together make up at least."""
_PARTS = 3
"""Most parts of a round that are named."""
_SMALL = 0.01
"""Parts with a smaller share are not named."""


def whereabouts(protocol: str, figures: dict[str, Numbers]) -> str:
    """Say in a sentence where a protocol's rounds spend their time and for whom they wait; empty if unknown."""
    spent, waited = time_spent(protocol, figures), waited_for(protocol, figures)
    texts = [f"spends {spent}"] if spent else []
    texts += [f"waits for {waited}"] if waited else []
    return f"A round of {protocol} {' and '.join(texts)}." if texts else ""


def time_spent(protocol: str, figures: dict[str, Numbers]) -> str:
    """Name the largest parts of a protocol's mean round: ``98 % on upload delay, 1 % on …``; empty if unknown."""
    if "breakdown" not in figures:
        return ""
    parts = figures["breakdown"]["rounds"]
    own = parts[(parts["protocol"] == protocol) & (parts["share"] >= _SMALL)].sort_values("share", ascending=False)
    shown = zip(own["part"][:_PARTS], own["share"][:_PARTS], strict=True)
    return ", ".join(f"{percent(share)} on “{part}”" for part, share in shown)


def mean_round(protocol: str, figures: dict[str, Numbers]) -> str:
    """Format the length of a protocol's mean round; empty if unknown."""
    if "breakdown" not in figures:
        return ""
    parts = figures["breakdown"]["rounds"]
    own = parts[parts["protocol"] == protocol]
    return quantity(float(f"{own['seconds'].sum():.3g}"), "s") if len(own) else ""


def waited_for(protocol: str, figures: dict[str, Numbers]) -> str:
    """Name the clients that a protocol's rounds wait for: ``clients 5–8 (99 % of rounds)``; empty if unknown."""
    if "waited" not in figures:
        return ""
    found = figures["waited"]["shares"]
    own = found[(found["protocol"] == protocol) & (found["stage"] == "last")].set_index("client")["share"]
    clients = own[own.index != 0].sort_values(ascending=False)
    if not len(clients):
        return ""
    if clients.sum() <= _SMALL:
        return "nobody"
    most = f"client {clients.index[0]} ({percent(clients.iloc[0])})"
    few = clients[: int((clients.cumsum() < _MOST * clients.sum()).sum()) + 1]
    if len(few) <= max(1, len(clients) // 2):
        named = numbered(sorted(int(name) for name in few.index))
        often = f", most often {most}" if len(few) > 1 else ""
        return f"{named} in {percent(few.sum())} of cases{often}"
    return f"no client in particular, most often {most}"


def percent(share: float) -> str:
    """Format a share: ``98 %``, ``0.4 %``, ``under 0.1 %``, ``over 99 %``."""
    if 0 < share < 0.001:
        return "under 0.1 %"
    if 0.995 <= share < 1 - 1e-9:
        return "over 99 %"
    return f"{100 * share:.0f} %" if share >= 0.095 or share == 0 else f"{100 * share:.1f} %"
