"""Formulas evaluated for many clients at once: the values, and the errors, of clients validated one by one."""

from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from vflsim.scenario.models import ClientTiming
from vflsim.vocabulary import entries
from vflsim.vocabulary.entries import Entry, PerClient

entries_of = Annotated[Entry[ClientTiming], PerClient(ClientTiming)]
ONE_BY_ONE = 10**9
EXPONENTIAL = {"kind": "exponential", "mean": "(100 + 100*i/N) ms"}

TOGETHER: dict[str, dict[str, Any]] = {
    "a quantity": {"compute": "i ms"},
    "a fraction of integers": {"compute": "m/7/3 us"},
    "signs": {"compute": "-(-i) * 0.1 ms"},
    "a constant of the scenario": {"compute": "slow + i - 1 s"},
    "the same for several": {"compute": "(i - i + 3) ms"},
    "a mean": {"upload_delay": EXPONENTIAL},
    "two in a delay": {"upload_delay": {"kind": "shifted_exponential", "shift": "i ms", "mean": "m/3 s"}},
    "several": {"compute": "i/3 us", "upload_delay": EXPONENTIAL, "link": {"latency": "m us", "up": "(i + 7) Mbps"}},
    "speed": {"compute": {"kind": "flops", "rate": "(1 + i/N) GFLOPS"}},
}
ALONE: dict[str, dict[str, Any]] = {
    "a power": {"compute": "2**(i/N) ms"},
    "keys that depend on each other": {"upload_delay": {"kind": "uniform", "low": "i ms", "high": "(i + 1) ms"}},
    "a function of single numbers": {"upload_delay": {"kind": "weibull", "shape": "1 + i/N", "scale": "1 s"}},
    "a list": {"upload_delay": {"kind": "sum", "parts": ["i ms", "3 ms"]}},
    "large integers": {"compute": "i*4503599627370496/4503599627370497 ms"},
    "an outage": {"availability": {"kind": "alternating", "up": "i s", "down": "1 s", "interrupted": "lost"}},
}
WRONG: dict[str, dict[str, Any]] = {
    "the last below 0": {"compute": "(40 - i) ms - 1 ms"},
    "one divides by 0": {"compute": "1/(i - 20) ms"},
    "a mean of 0": {"upload_delay": {"kind": "exponential", "mean": "i - 33"}},
    "too large": {"upload_delay": {"kind": "exponential", "mean": "i*1e306"}},
    "no unit": {"link": {"up": "i*90"}},
    "unknown symbol": {"compute": "i*fast"},
    "unknown key": {"computes": "i ms"},
    "unit": {"compute": "i Mbps"},
}


def of(fields: dict[str, Any], few: int, monkeypatch: pytest.MonkeyPatch, clients: int = 40) -> Any:
    monkeypatch.setattr(entries, "FEW", few)
    adapter: TypeAdapter[Any] = TypeAdapter(entries_of)
    return adapter.validate_python({"select": "3..N", **fields}, context={"symbols": {"N": clients, "slow": 2.5}})


@pytest.mark.parametrize("fields", [*TOGETHER.values(), *ALONE.values()], ids=[*TOGETHER, *ALONE])
def test_values_are_those_of_clients_validated_one_by_one(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    together, alone = of(fields, 0, monkeypatch), of(fields, ONE_BY_ONE, monkeypatch)
    assert together.clients == alone.clients == tuple(range(3, 41))
    assert together.values == alone.values
    assert [repr(each) for each in together.values] == [repr(each) for each in alone.values]
    assert [each.model_dump_json(exclude_unset=True) for each in together.values] == [
        each.model_dump_json(exclude_unset=True) for each in alone.values
    ]


@pytest.mark.parametrize("fields", TOGETHER.values(), ids=TOGETHER)
def test_clients_are_not_validated_one_by_one(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PerClient, "_evaluated", None)
    found = of(fields, 0, monkeypatch)
    assert len(found.values) == 38
    numbers = (
        [type(value) for value in found.values[0].upload_delay.__dict__.values()] if "upload_delay" in fields else []
    )
    assert all(kind in (float, str) for kind in numbers)


def test_clients_with_equal_values_share_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    found = of(TOGETHER["the same for several"], 0, monkeypatch)
    assert len({id(value) for value in found.values}) == 1


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG)
def test_errors_are_those_of_clients_validated_one_by_one(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for few in (0, ONE_BY_ONE):
        with pytest.raises(ValidationError) as error:
            of(fields, few, monkeypatch)
        said.append(str(error.value.errors(include_url=False)))
    assert said[0] == said[1]


@pytest.mark.parametrize("value", [3, "all", [1, 2]])
def test_an_entry_that_is_no_mapping_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(entries_of).validate_python(value)
