"""The timing of one party: its computation, link, delays, activations and availability."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vflsim.timing.activation import AnyActivation, Immediate
from vflsim.timing.availability import Always, AnyAvailability
from vflsim.timing.compute import AnyCompute
from vflsim.timing.delays import AnyDelay, Constant
from vflsim.timing.link import Link
from vflsim.timing.power import Power
from vflsim.vocabulary.base import Part


def by_timing(timings: Sequence[PartyTiming], parties: Iterable[int]) -> list[list[int]]:
    """Return the parties by timing, in the order of the first of each; alike parties share one timing object."""
    found: dict[int, list[int]] = {}
    for party in parties:
        found.setdefault(id(timings[party]), []).append(party)
    return list(found.values())


class PartyTiming(Part):
    """The speed of one party, with every formula evaluated. Omitted activities take no time."""

    compute: AnyCompute = Constant(value=0.0)
    link: Link = Link()
    upload_delay: AnyDelay = Constant(value=0.0)
    activation: AnyActivation = Immediate()
    availability: AnyAvailability = Always()
    power: Power | None = None

    def refined(self, by: Part, links: dict[tuple[int, int], Link] | None = None) -> PartyTiming:
        """Replace the fields that ``by``, a part with some of these fields, sets; refine the link key by key.

        ``links``: those that are already refined, by the identity of both; equal links of many parties stay one object.
        """
        given = {key: value for key in by.model_fields_set if (value := getattr(by, key)) is not None}
        if (link := given.get("link")) is not None:
            known, key = {} if links is None else links, (id(self.link), id(link))
            if key not in known:
                known[key] = self.link.model_copy(update={key: getattr(link, key) for key in link.model_fields_set})
            given["link"] = known[key]
        return self.changed(given)
