"""Views of values that a party keeps as their recipe."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from vflsim.learning.execution.operations import Handle, ImmediateExecutor
from vflsim.learning.learners.inputs import KeptValue
from vflsim.world.wire import Views


class Rowless(KeptValue):
    """A value without rows: ``rows_at`` is the default."""

    recipe: ClassVar[str] = "rowless"

    def written(self, writer: Any) -> Any:
        raise AssertionError("not written here")

    @classmethod
    def read(cls, recipe: Any, reader: Any) -> Any:
        raise AssertionError("not read here")


def test_a_kept_value_without_rows_has_no_view_and_ends_no_run() -> None:
    executor = ImmediateExecutor()
    views = Views(np.array([0, 2]), executor, lambda: 1.0, {})
    kept: Handle[Any] = Handle((3, 1), torch.float32)
    kept.set(Rowless())
    views.derive(0, "kept", np.array([0, 1, 2]), (kept,))
    plain: Handle[Any] = Handle((3, 1), torch.float32)
    plain.set(torch.tensor([[1.0], [2.0], [3.0]]))
    views.derive(0, "plain", np.array([0, 1, 2]), (plain,))
    state = views.state()
    assert [name for name in state if "kept" in name] == []
    (values,) = (state[name] for name in state if "plain" in name and name.endswith("values"))
    assert values.tolist() == [[1.0], [3.0]]
