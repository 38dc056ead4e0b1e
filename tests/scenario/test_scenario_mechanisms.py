"""What a scenario can say of a protocol's mechanism, and how it is told what it cannot."""

from pathlib import Path

import pytest

from vflsim.errors import ScenarioError
from vflsim.learning.privacy.mechanisms import Gaussian
from vflsim.scenario import dump, load, schema

DP = "{kind: gaussian, clip: 1, delta: 1e-5, epsilon: 5, per: release}"
WAIT = "wait: {kind: synchronous}"


def with_mechanism(base: str, said: str, protocol: str = "kind: synchronous") -> str:
    assert base.count(WAIT) == 1
    return base.replace(WAIT, f"wait: {{{protocol}, mechanism: {said}}}")


def test_a_mechanism_stands_in_the_entry_of_its_protocol(base: str) -> None:
    scenario = load(with_mechanism(base, DP))
    expected = Gaussian(clip=1.0, delta=1e-5, epsilon=5.0, per="release")
    assert scenario.protocols["wait"].mechanism == expected
    assert scenario.protocols["two"].mechanism is None
    assert load(dump(scenario)) == scenario


def test_formulas_and_overrides_reach_into_a_mechanism(base: str) -> None:
    text = with_mechanism(base, "{kind: gaussian, clip: N/2, delta: 1/10**5, epsilon: 5, per: run, releases: 10*N}")
    scenario = load(text, ["protocols.wait.mechanism.epsilon=2"])
    expected = Gaussian(clip=2.0, delta=1e-5, epsilon=2.0, per="run", releases=40)
    assert scenario.protocols["wait"].mechanism == expected


def test_the_json_schema_knows_the_key_of_every_protocol_and_the_kind(base: str) -> None:
    entries = schema()["$defs"]
    assert entries["Gaussian"]["required"][:3] == ["kind", "delta", "clip"]
    assert "mechanism" in str(schema()["properties"]["protocols"]) + str(entries["ProtocolEntry"])


@pytest.mark.parametrize(
    ("said", "key", "fragments"),
    [
        (
            "{clip: 1, delta: 1e-5, noise_multiplier: 1}",
            "mechanism",
            ("kind is missing", "allowed: gaussian, perturbed_local_embedding", "add `kind"),
        ),
        ("{kind: laplace, clip: 1, delta: 1e-5, noise_multiplier: 1}", "mechanism.kind", ("'laplace'", "gaussian")),
        ("gaussian", "mechanism", ("'gaussian'", "mapping")),
        ("{kind: gaussian, delta: 1e-5, noise_multiplier: 1}", "mechanism.clip", ("'clip' is missing",)),
        ("{kind: gaussian, clip: 1, noise_multiplier: 1}", "mechanism.delta", ("'delta' is missing",)),
        ("{kind: gaussian, clip: -1, delta: 1e-5, noise_multiplier: 1}", "mechanism.clip", ("-1", "above 0")),
        ("{kind: gaussian, clip: 1, delta: 1, noise_multiplier: 1}", "mechanism.delta", ("1 is out", "below 1")),
        (
            "{kind: gaussian, clip: 1, delta: 1e-5, noise_multiplier: 0}",
            "mechanism.noise_multiplier",
            ("0 is out", "1e-12"),
        ),
        ("{kind: gaussian, clip: 1, delta: 1e-5, epsilon: 0, per: release}", "mechanism.epsilon", ("0 is out",)),
        ("{kind: gaussian, clip: 1, delta: 1e-5, epsilon: 5}", "mechanism", ("per: release", "per: run", "epsilon: 5")),
        (
            "{kind: gaussian, clip: 1, delta: 1e-5, epsilon: 5, per: epoch}",
            "mechanism.per",
            ("'epoch'", "release, run"),
        ),
        ("{kind: gaussian, clip: 1, delta: 1e-5, epsilon: 5, per: run}", "mechanism", ("not known", "add `rounds:")),
        ("{kind: gaussian, clip: 1, delta: 1e-5}", "mechanism", ("none of noise_multiplier and epsilon",)),
        ("{kind: gaussian, clip: 1, delta: 1e-5, sigma: 1}", "mechanism.sigma", ("no key 'sigma'", "noise_multiplier")),
    ],
)
def test_a_wrong_mechanism_is_refused_with_file_line_and_key(
    said: str, key: str, fragments: tuple[str, ...], base: str, tmp_path: Path
) -> None:
    text = with_mechanism(base, said)
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(path)
    message = str(caught.value)
    line = text[: text.index("mechanism:")].count("\n") + 1
    assert message.startswith(f"{path}:{line}: protocols.wait.{key}: ")
    for fragment in fragments:
        assert fragment in message, message


@pytest.mark.parametrize("protocol", ["kind: centralised", "kind: fedvs, K: 1, T: 1"])
def test_a_protocol_without_uploaded_embeddings_takes_no_mechanism(protocol: str, base: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(with_mechanism(base, DP, protocol), encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(path)
    kind = protocol.split()[1].strip(",")
    assert f": protocols.wait.mechanism: clients of a {kind} protocol upload no embeddings" in str(caught.value)
    assert "in protocols of kind synchronous" in str(caught.value)
