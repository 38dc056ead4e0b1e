"""What a scenario can say of a protocol's blinding, and how it is told what it cannot."""

from typing import Any

import pytest
from tiny_worlds import data_of, raw, run, tiny

from vflsim.errors import ScenarioError
from vflsim.learning.privacy.blinding import Blinding
from vflsim.protocols import PROTOCOLS
from vflsim.scenario import dump, load, schema
from vflsim.scenario.resolve import course_digest, setting
from vflsim.simulation.vectorised import obstacles
from vflsim.studies.checks.describe import overrides
from vflsim.studies.checks.estimates import expectation

ACCEPTS = {"synchronous", "ignore", "easter"}
"""The kinds whose server needs only the sum."""
NEEDED: dict[str, dict[str, Any]] = {"t_synchronous": {"t": 2}, "fedvs": {"K": 1}, "fedbcd": {"local_steps": 2}}


def said(blinding: Any, kind: str = "synchronous", **changes: Any) -> dict[str, Any]:
    return raw({"it": {"kind": kind, "blinding": blinding, **NEEDED.get(kind, {})}}, **changes)


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(document)
    return str(caught.value)


@pytest.mark.parametrize("words", ["on", True, {}])
def test_on_is_short_for_the_defaults(words: Any) -> None:
    scenario = load(said(words))
    assert scenario.blinding_of("it") == Blinding() == Blinding(bits=32, fraction=16, missing="wait")
    assert setting(scenario, "it", data_of(scenario)).blinding == Blinding()
    assert load(dump(scenario)) == scenario


@pytest.mark.parametrize("words", ["off", False])
def test_off_is_off_and_so_is_nothing_but_for_protocols_that_blind_by_default(words: Any) -> None:
    for kind in ("synchronous", "easter"):
        assert load(said(words, kind)).blinding_of("it") is None
    assert tiny("synchronous").blinding_of("synchronous") is None
    assert tiny("easter").blinding_of("easter") == Blinding()


def test_formulas_and_overrides_reach_into_blinding() -> None:
    text = "\n".join(dump(load(said({"bits": 64, "fraction": 3}))).splitlines())
    scenario = load(text.replace("fraction: 3", "fraction: 10*N"), ["protocols.it.blinding.missing=skip"])
    assert scenario.blinding_of("it") == Blinding(bits=64, fraction=40, missing="skip")
    assert list(overrides(scenario)) == ["it differs: blinding: {bits: 64, fraction: 10*N, missing: skip}"]


def test_the_json_schema_knows_the_key() -> None:
    entries = schema()["$defs"]
    assert entries["Blinding"]["properties"].keys() == {"bits", "fraction", "missing"}
    assert "blinding" in str(entries["ProtocolEntry"])


@pytest.mark.parametrize(
    ("blinding", "key", "fragments"),
    [
        ({"bits": 16}, "blinding.bits", ("16", "32, 64")),
        ({"fraction": -1}, "blinding.fraction", ("-1", "at least 0")),
        ({"fraction": 30}, "blinding", ("30 of 32 bits", "magnitudes up to 0.5", "allowed: 0 to 29")),
        ({"missing": "drop"}, "blinding.missing", ("'drop'", "wait", "skip", "stop")),
        ({"precision": 8}, "blinding.precision", ("no key 'precision'", "fraction")),
        ("maybe", "blinding", ("'maybe'", "on, off, or a mapping")),
    ],
)
def test_wrong_values_are_refused_with_their_key(blinding: Any, key: str, fragments: tuple[str, ...]) -> None:
    message = refusal(said(blinding))
    assert "problems" not in message
    assert f"protocols.it.{key}" in message
    for fragment in fragments:
        assert fragment in message


def test_a_fixed_point_too_narrow_for_so_many_clients_is_refused() -> None:
    assert load(said({"fraction": 27})).clients == 4
    message = refusal(said({"fraction": 28}))
    assert "fraction: 28 of 32 bits leave embeddings of 4 clients magnitudes up to 0.5" in message
    assert "allowed: 0 to 27" in message


@pytest.mark.parametrize(
    ("it", "clients"),
    [
        ({"kind": "synchronous", "blinding": "on"}, 1),
        ({"kind": "ignore", "exclude": "2..N", "blinding": "on"}, 3),
        ({"kind": "easter"}, 1),
        ({"kind": "easter", "blinding": {"missing": "skip"}}, 1),
    ],
    ids=["synchronous", "all but one excluded", "easter by default", "easter"],
)
def test_a_single_client_has_nobody_to_share_masks_with_and_is_refused(it: dict[str, Any], clients: int) -> None:
    changes: dict[str, Any] = {"partition__clients": clients, "timing": {}}
    message = refusal(raw({"it": it}, **changes))
    assert "with 1 client there are no masks, and the server sees its embeddings" in message
    assert "allowed: at least 2 clients that take part" in message
    assert "set `blinding: off`" in message
    assert ("a protocol of kind easter blinds by default" in message) is ("blinding" not in it)
    assert load(raw({"it": {**it, "blinding": "off"}}, **changes)).blinding_of("it") is None


def test_numbers_of_clients_agree_with_their_noun() -> None:
    assert "leave embeddings of 1 client magnitudes up to 0.5" in refusal(said({"fraction": 30}))
    assert "leave embeddings of 4 clients magnitudes up to 0.5" in refusal(said({"fraction": 28}))


def test_a_protocol_says_so_if_its_server_needs_only_the_sum() -> None:
    accepting = [each for each in PROTOCOLS if each.traits.blindable]
    assert {each.model_fields["kind"].default for each in accepting} == ACCEPTS


@pytest.mark.parametrize("kind", ["t_synchronous", "asynchronous", "fedvs", "fedbcd", "centralised"])
def test_servers_that_need_single_embeddings_refuse_blinding(kind: str) -> None:
    message = refusal(said("on", kind))
    assert "the server of this protocol needs each embedding by itself, not only the sum of all" in message
    assert "protocols.it.blinding" in message


@pytest.mark.parametrize("aggregate", ["concat", "max", "weighted", "learned_mean"])
def test_only_sums_and_means_can_be_blinded(aggregate: str) -> None:
    message = refusal(said("on", models__aggregate=aggregate))
    assert f"aggregate: {aggregate} needs each embedding by itself" in message
    assert "allowed: with aggregate: mean, sum" in message
    assert load(said("off", models__aggregate=aggregate)).blinding_of("it") is None


@pytest.mark.parametrize("missing", ["skip", "stop"])
def test_rounds_of_the_fastest_few_would_never_have_a_step(missing: str) -> None:
    def ignoring(fastest: int, missing: str) -> dict[str, Any]:
        return raw({"it": {"kind": "ignore", "fastest": fastest, "blinding": {"missing": missing}}})

    assert "applies to every round of the fastest 3 of 4 clients" in refusal(ignoring(3, missing))
    assert load(ignoring(4, missing)).blinding_of("it") == Blinding(missing=missing)  # type: ignore[arg-type]
    assert load(ignoring(3, "wait")).blinding_of("it") == Blinding()


def test_check_states_the_promise_and_only_complete_rounds_have_a_vectorised_path() -> None:
    fastest = {"kind": "ignore", "fastest": 3}
    scenario = tiny(
        {
            "clear": {"kind": "synchronous"},
            "blind": {"kind": "synchronous", "blinding": "on"},
            "some": fastest,
            "some-blind": {**fastest, "blinding": "on"},
        }
    )
    assert expectation(scenario, "clear", data_of(scenario), steps=2).promise == ""
    promise = expectation(scenario, "blind", data_of(scenario), steps=2).promise
    assert promise == (
        "embeddings blinded: the server sees sums over 4 clients; 32 bits, 16 after the point, magnitudes up to 2048"
    )
    assert obstacles(scenario, "blind") == obstacles(scenario, "clear")
    found = [problem.what for problem in obstacles(scenario, "some-blind")]
    assert "rounds end without some embeddings, and the vectorised path knows no missing masks" in found
    assert len(obstacles(scenario, "some")) == len(found) - 1


def test_blinding_is_in_run_json_alone_where_there_is_any() -> None:
    scenario = tiny({"clear": {"kind": "synchronous"}, "blind": {"kind": "synchronous", "blinding": "on"}})
    assert run(scenario, "clear").info.blinding is None
    facts = run(scenario, "blind").info.blinding
    assert facts is not None
    assert facts.context == course_digest(scenario, "blind")
    assert facts.model_dump(exclude={"context"}) == {
        "bits": 32, "fraction": 16, "missing": "wait", "largest": 2048.0, "rounds_missing": 0, "lacked": {}
    }  # fmt: skip
