"""The timing of one party: its computation, link, delays, activations and availability."""

from __future__ import annotations

from vflsim.timing.activation import AnyActivation, Immediate
from vflsim.timing.availability import Always, AnyAvailability
from vflsim.timing.compute import AnyCompute
from vflsim.timing.delays import AnyDelay, Constant
from vflsim.timing.link import Link
from vflsim.vocabulary.base import Part


class PartyTiming(Part):
    """The speed of one party, with every formula evaluated. Omitted activities take no time."""

    compute: AnyCompute = Constant(value=0.0)
    link: Link = Link()
    upload_delay: AnyDelay = Constant(value=0.0)
    activation: AnyActivation = Immediate()
    availability: AnyAvailability = Always()

    def refined(self, by: Part) -> PartyTiming:
        """Replace the fields that ``by``, a part with some of these fields, sets; refine the link key by key."""
        given = {key: value for key in by.model_fields_set if (value := getattr(by, key)) is not None}
        if (link := given.get("link")) is not None:
            given["link"] = self.link.model_copy(update={key: getattr(link, key) for key in link.model_fields_set})
        return self.model_copy(update=given)
