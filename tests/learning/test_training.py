from typing import Any

import pytest
import torch
from pydantic import ValidationError

from vflsim.learning.optimizers import Adam, Sgd
from vflsim.learning.tasks import Auto, CrossEntropy
from vflsim.learning.training import Dropout, Training, TrainingOverride

BASE = Training(batch=64, client_optimizer=Sgd(lr=0.1), server_optimizer=Sgd(lr=0.2))
CHANGES: dict[str, Any] = {
    "batch": 32,
    "batches": "own",
    "sampling": "uniform",
    "last_batch": "drop",
    "client_optimizer": Adam(lr=0.3),
    "server_optimizer": Adam(lr=0.4),
    "dtype": "float64",
    "loss": CrossEntropy(),
    "dropout": Dropout(party=0.3),
}


def test_the_defaults() -> None:
    assert (BASE.batches, BASE.last_batch, BASE.dtype, BASE.loss) == ("shared", "keep", "float32", Auto())


def test_everything_can_be_overridden() -> None:
    assert set(CHANGES) == set(Training.model_fields) == set(TrainingOverride.model_fields)


@pytest.mark.parametrize("key", sorted(CHANGES))
def test_an_override_changes_what_it_names_and_nothing_else(key: str) -> None:
    changed = BASE.overridden(TrainingOverride(**{key: CHANGES[key]}))
    assert type(changed) is Training
    assert getattr(changed, key) == CHANGES[key]
    assert changed != BASE
    assert changed.model_copy(update={key: getattr(BASE, key)}) == BASE


def test_an_empty_override_changes_nothing() -> None:
    assert BASE.overridden(None) == BASE.overridden(TrainingOverride()) == BASE
    assert BASE.overridden(TrainingOverride(batch=None)) == BASE


def test_the_precision_is_one_of_pytorchs() -> None:
    assert BASE.torch_dtype == torch.float32
    assert BASE.overridden(TrainingOverride(dtype="float64")).torch_dtype == torch.float64


@pytest.mark.parametrize("model", [Training, TrainingOverride])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("batch", 0),
        ("batch", "8 s"),
        ("batches", "mine"),
        ("last_batch", "pad"),
        ("dtype", "float16"),
        ("loss", "hinge"),
    ],
)
def test_bad_values_are_refused(model: type[Training | TrainingOverride], key: str, value: Any) -> None:
    given = {} if model is TrainingOverride else BASE.model_dump()
    with pytest.raises(ValidationError, match=key):
        model.model_validate({**given, key: value})


def test_a_dump_loads_back() -> None:
    assert Training.model_validate(BASE.model_dump(mode="json")) == BASE
