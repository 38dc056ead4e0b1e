"""Feature attributions of a run's server against those of another run's (Qiu et al. 2024, Table 3)."""

import warnings
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias, final

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from vflsim.attacks.base import Attack, AttackedRun, Measured, logits_of
from vflsim.errors import of_extra
from vflsim.finished import PredictionTask, Results, Uploads
from vflsim.protocol import SERVER, Count, Floats, party_name
from vflsim.scenario import Scenario

Method: TypeAlias = Literal["integrated_gradients", "deeplift", "ablation"]
COMPLETE = 1e-3
"""The allowed difference of the sum of DeepLIFT's attributions and the explained value, relative to its maximum."""


@final
class Attribution(Attack):
    """How alike two servers weigh the elements of an upload: this run's, and that of the reference with the same seed.

    An element's attribution is its part in the logit of a row's class, against a baseline of zeros, through the run's
    codec; its mean over rows, of all elements of a client, divided by the sum of absolute values.
    """

    kind: Literal["attribution"] = "attribution"
    reference: str | None = None
    """The protocol of the scenario to compare with; unless given, the first one attacked that has the same models and
    whose codec changes nothing."""
    method: Annotated[tuple[Method, ...], Field(min_length=1)] = ("integrated_gradients", "deeplift", "ablation")
    """How attributions are computed, by captum."""
    steps: Count = 50
    """Points on the path of integrated gradients."""
    rows: Count = 500
    """Test rows, at most."""
    title: ClassVar[str] = "attributions of uploaded elements, against the reference"
    measures: ClassVar[Mapping[str, str]] = {
        "euclidean": "Euclidean distance",
        "correlation": "correlation distance",
        "tau": "Kendall's τ",
        "p_value": "p-value of τ",
    }
    drawn: ClassVar[tuple[str, ...]] = ("tau",)
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"tau": (-1, 1)}
    note: ClassVar[str] = (
        "distances of two vectors with an element for each element of a client's upload: 0 for equal attributions; "
        "Kendall's τ is 1 for the same order, 0 for unrelated ones. The two runs begin with the same weights, and no "
        "more than that makes element 5 of one the counterpart of element 5 of the other"
    )

    def check(self, results: Results, scenario: Scenario) -> None:
        """Raise ``ValueError`` if the reference does not exist."""
        if self.reference is not None and self.reference not in results.protocols:
            raise ValueError(f"there is no protocol {self.reference!r}; allowed: {', '.join(results.protocols)}")

    def on(self, attacked: AttackedRun) -> Iterator[Measured]:
        """Compare with the reference, client by client."""
        task, name = attacked.models.data.task, self._reference(attacked)
        if name == attacked.run.protocol:
            attacked.remarks.append("it is the reference")
            return
        uploads = attacked.uploads(self.rows)
        try:
            others = attacked.beside(name).uploads(self.rows)
        except ValueError as error:
            raise ValueError(f"there is nothing to compare with: {name}: {error}") from None
        shapes, wanted = ({client: tuple(h.shape) for client, h in each.sent.items()} for each in (uploads, others))
        if shapes != wanted:
            raise ValueError(f"its clients upload other embeddings than those of the reference {name}")
        for method in self.method:
            try:
                vectors, reference = (attributions(each, task, method, self.steps) for each in (uploads, others))
            except ValueError as error:
                attacked.remarks.append(str(error))
                continue
            for client in uploads.sent:
                for measure, value in distances(vectors[client], reference[client]).items():
                    yield Measured(measure, value, party_name(client), {"reference": name, "method": method})

    def _reference(self, attacked: AttackedRun) -> str:
        if self.reference is not None:
            return self.reference
        scenario, protocol_name = attacked.scenario, attacked.run.protocol
        alike = [name for name in attacked.selected if scenario.models_of(name) == scenario.models_of(protocol_name)]
        for name in alike if len(alike) > 1 else ():
            protocol = scenario.protocols[name].protocol
            apart = not protocol.traits.reference and scenario.participants_of(name)
            if apart and scenario.codec_of(name).towards(SERVER).lossless:
                return name
        raise ValueError(
            "no selected protocol with the same models leaves embeddings as they are; allowed: "
            "attribution.reference=PROTOCOL"
        )


class LabelLogits(nn.Module):
    """The logits of the rows' own classes as a function of all uploads side by side, k times in a row."""

    def __init__(self, uploads: Uploads, task: PredictionTask, wired: bool = True) -> None:
        super().__init__()
        self.models = nn.ModuleList(uploads.prediction.modules)
        self._uploads, self._task, self._wired = uploads, task, wired

    def forward(self, together: Tensor) -> Tensor:
        """Return (k · rows,) of (k · rows, widths)."""
        uploads = self._uploads
        parts = zip(uploads.sent, torch.split(together, widths_of(uploads), dim=1), strict=True)
        received = {client: uploads.wiring.arrive(client, h) if self._wired else h for client, h in parts}
        times = len(together) // len(uploads.labels)
        labels = uploads.labels.repeat(times, *[1] * (uploads.labels.dim() - 1))
        return logits_of(uploads.predict(received), labels, self._task)


def attributions(uploads: Uploads, task: PredictionTask, method: Method, steps: int = 50) -> dict[int, Floats]:
    """Return the mean attribution of every element that a client uploads, (width,) float64 by client.

    The vector of a client is divided by the sum of its absolute values. Raises ``ValueError`` for a method that cannot
    explain the server's model.
    """
    with of_extra("attacks", f"the method {method}"):  # slow to import, and nothing else needs it
        from captum.attr import DeepLift, FeatureAblation, IntegratedGradients

    model = LabelLogits(uploads, task)
    together = torch.cat([*uploads.sent.values()], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # captum warns of its temporary hooks
        if method == "integrated_gradients":
            attribution = IntegratedGradients(model).attribute(together, n_steps=steps)
        elif method == "ablation":
            attribution = FeatureAblation(model).attribute(together)
        else:
            received = torch.cat([*uploads.received.values()], 1)
            plain = LabelLogits(uploads, task, wired=False)
            _, missing = DeepLift(plain).attribute(received, return_convergence_delta=True)
            with torch.no_grad():
                explained = (plain(received) - plain(torch.zeros_like(received))).abs().max()
            if float(missing.abs().max()) > COMPLETE * float(explained):
                raise ValueError("DeepLIFT has no rule for a layer of the server's model; allowed: ReLU and its like")
            attribution = DeepLift(model).attribute(together)
    mean = attribution.detach().double().mean(0)
    parts = zip(uploads.sent, torch.split(mean, widths_of(uploads)), strict=True)
    return {client: (part / part.abs().sum().clamp(min=torch.finfo().tiny)).numpy() for client, part in parts}


def widths_of(uploads: Uploads) -> list[int]:
    """Return the width of every client's upload."""
    return [h.shape[1] for h in uploads.sent.values()]


def distances(vector: Floats, reference: Floats) -> dict[str, float]:
    """Compare two vectors by Euclidean and correlation distance, and by Kendall's τ with its p-value.

    Correlation distance and τ are NaN where a vector is constant.
    """
    from scipy.stats import kendalltau  # slow to import

    centred, other = vector - vector.mean(), reference - reference.mean()
    with np.errstate(invalid="ignore"):
        correlation = np.dot(centred, other) / np.sqrt(np.dot(centred, centred) * np.dot(other, other))
    kendall = kendalltau(vector, reference)
    return {
        "euclidean": float(np.linalg.norm(vector - reference)),
        "correlation": float(1 - correlation),
        "tau": float(kendall.statistic),
        "p_value": float(kendall.pvalue),
    }
