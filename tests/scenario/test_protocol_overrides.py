"""What a protocol entry replaces for itself: models, aggregate, optimisers, batch, codec and mechanism."""

from typing import Any

import pytest
from tiny_worlds import data_of, learners, raw, run

from vflsim.errors import ScenarioError
from vflsim.scenario import load
from vflsim.scenario.resolve import ScenarioData
from vflsim.studies.checks.describe import described, overrides

POLYNOMIAL = {"kind": "polynomial", "degree": 2, "embedding": 5}


def both(**entry: Any) -> dict[str, Any]:
    """MLP clients of a synchronous protocol beside a protocol with its own models."""
    mlp = {"kind": "mlp", "hidden": [7], "embedding": 6}
    fedvs = {"kind": "fedvs", "K": 1, "models": {"client": POLYNOMIAL, **entry}}
    protocols = {"wait": {"kind": "synchronous"}, "coded": fedvs, "same": {"kind": "t_synchronous", "t": 2}}
    return raw(protocols, models__client=mlp, training__dtype="float32")


def test_perceptrons_and_polynomials_meet_in_one_scenario() -> None:
    scenario = load(both())
    widths = {name: learners(scenario, name, 0, data_of(scenario))[1][1].width for name in scenario.protocols}
    assert widths == {"wait": 6, "coded": 5, "same": 6}
    for name in scenario.protocols:
        outcome = run(scenario, name)
        assert outcome.error is None


def test_initial_weights_stay_common_where_models_are_equal() -> None:
    scenario = load(both())
    wait, same, coded = (learners(scenario, name, 3, data_of(scenario)) for name in ("wait", "same", "coded"))
    for client in (1, 4):
        one, other = wait[1][client].model.state_dict(), same[1][client].model.state_dict()
        assert all(one[key].equal(other[key]) for key in one)
        assert coded[1][client].model.state_dict().keys() != one.keys()


def test_every_part_of_the_split_model_can_be_replaced() -> None:
    server = {"kind": "mlp", "hidden": [3]}
    said = raw(
        {
            "one": {"kind": "synchronous"},
            "two": {"kind": "synchronous", "models": {"aggregate": "sum", "server": server}},
        }
    )
    scenario = load(said)
    assert scenario.models_of("two").aggregate.kind == "sum"
    assert scenario.models_of("two").server.hidden == (3,)  # type: ignore[union-attr]
    assert scenario.models_of("two").client == scenario.models.client
    assert scenario.models_of("one") == scenario.models


def test_check_names_what_differs() -> None:
    scenario = load(both(aggregate="mean"))
    assert list(overrides(scenario)) == ["coded differs: models.client: {kind: polynomial, degree: 2, embedding: 5}"]
    assert next(overrides(scenario)) in described(scenario, ScenarioData(scenario))


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"client": {"kind": "mlp", "hidden": [7], "embedding": 6}}, "computes on shares of polynomials"),
        ({"client": [{"select": "1..2", **POLYNOMIAL}]}, "protocols.coded.models.client"),
        ({"aggregate": "concat"}, "protocols.coded"),
        ({"client": {**POLYNOMIAL, "degree": 0}}, "protocols.coded.models.client"),
    ],
)
def test_mistakes_in_an_override_name_its_own_key(entry: dict[str, Any], named: str) -> None:
    with pytest.raises(ScenarioError, match=named):
        load(both(**entry))
