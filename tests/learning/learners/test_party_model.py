"""A party's model is outlined once, however often its weights and bytes are asked for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vflsim.learning.learners.party_model import PartyModel
from vflsim.learning.models import footprint
from vflsim.learning.optimizers import Sgd


def test_weights_and_bytes_of_a_draft_are_counted_once() -> None:
    drafts: list[nn.Module] = []

    def draft() -> nn.Module:
        drafts.append(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)))
        return drafts[-1]

    model = PartyModel("model", draft, Sgd(lr=0.1), (6,), torch.float64, draft=draft)
    assert [model.parameters for _ in range(3)] == [47] * 3
    assert len(drafts) == 1
    few, more = model.footprint(20), model.footprint(40)
    assert len(drafts) == 2
    assert 2 * few.output == more.output == 40 * 2 * 8
    assert model.footprint(20) == few
    assert not model.made


def test_a_model_whose_values_are_many_is_outlined_once_and_passes_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    drafts: list[nn.Module] = []

    def draft() -> nn.Module:
        drafts.append(nn.Linear(6, 5))
        return drafts[-1]

    monkeypatch.setattr(footprint, "_SMALL", 10)
    found = [footprint.footprint(draft, (6,), rows, torch.float64).output for rows in (3, 9)]
    assert found == [3 * 5 * 8, 9 * 5 * 8]
    assert len(drafts) == 1
