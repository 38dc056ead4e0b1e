"""Every attack on runs of every kind: what it measures, repeats and leaves out."""

from __future__ import annotations

import json
import shutil
from math import isfinite
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from attacked_runs import NOTHING_UPLOADED, finished
from protocols_by_kind import HEADS, KINDS

from vflsim.attacks import ATTACKS, Evaluation, chosen, evaluate, save
from vflsim.attacks.evaluate import evaluation_markdown
from vflsim.errors import ResultsError, ScenarioError
from vflsim.results.read import Results
from vflsim.scenario import load
from vflsim.studies.study import run_study

QUICK = {
    "pgd": ["pgd.omega=1", "pgd.step=0.5", "pgd.steps=3", "pgd.rows=20"],
    "smoothing": ["smoothing.samples=40", "smoothing.guesses=10", "smoothing.sigma=0.5", "smoothing.rows=20"],
    "attribution": ["attribution.rows=10", "attribution.steps=5"],
}
NO_REFERENCE = (
    "no selected protocol with the same models leaves embeddings as they are; allowed: attribution.reference=PROTOCOL"
)
QUANTISED = {"kind": "scalar_quantiser", "bits": 3}
ATTACKED = (
    "ignore-fastest",
    "t-synchronous-bounded",
    "asynchronous",
    "fedvs",
    "vimadmm",
    "vimadmm_j",
    "fdml-exclude",
    "fedbcd-recomputed",
    "easter",
    "ignore-blinded",
    "ef_vfl",
    "pyvertical",
    "agg_vfl",
)


def quick(*kinds: str, **options: Any) -> list[Any]:
    """Attacks with options that take no time."""
    return chosen(kinds, [option for kind in kinds for option in QUICK.get(kind, [])])


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Two seeds of four entries, of which one has no uploads."""
    entries = {
        "float": {"kind": "synchronous"},
        "coarse": {"kind": "synchronous", "codec": QUANTISED},
        "alone": {"kind": "centralised"},
        "gelu": {"kind": "synchronous", "models": {"server": {"kind": "mlp", "hidden": [8], "activation": "gelu"}}},
    }
    return finished(entries, tmp_path_factory.mktemp("attacked") / "tiny", seeds=[0, 1], stop={"rounds": 30})


@pytest.fixture(scope="module")
def evaluation(study: Results) -> Evaluation:
    return evaluate(study, quick("pgd", "smoothing", "attribution"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ATTACKED)
def test_every_attack_measures_every_protocol_with_uploads(name: str, tmp_path: Path) -> None:
    entry = KINDS[name]
    quantised = {"kind": "by_direction", "down": QUANTISED} if name == "fedvs" else QUANTISED  # it uploads integers
    coarse = entry | ({} if "codec" in entry else {"codec": quantised})
    results = finished({"plain": {**entry, "codec": "plain"}, "coarse": coarse}, tmp_path / "study")
    found = evaluate(results, quick("pgd", "smoothing", "attribution"))
    assert {kind: set(table["protocol"]) for kind, table in found.tables.items()} == {
        "pgd": {"plain", "coarse"},
        "smoothing": {"plain", "coarse"},
        "attribution": {"coarse"},
    }
    assert found.left_out == {"attribution of plain": "it is the reference"}
    participants = {f"client-{client}" for client in results.run("plain", 0).info.participants}
    for kind, table in found.tables.items():
        assert set(table["measure"]) == set(ATTACKS[kind].measures)
        assert table["value"].map(isfinite).all()
        assert set(table["party"]) == ({""} if kind == "smoothing" else participants)


@pytest.mark.parametrize("kind", ATTACKS)
def test_the_table_has_every_attack_with_its_labels(kind: str) -> None:
    attack = ATTACKS[kind]
    assert set(attack.drawn) <= set(attack.measures)
    assert attack.title
    assert attack.note
    assert not attack.note.endswith(".")


@pytest.mark.slow
def test_rows_are_tidy(evaluation: Evaluation) -> None:
    table = evaluation.tables["pgd"]
    assert list(table.columns[:6]) == ["protocol", "seed", "attack", "party", "omega", "step"]
    assert list(table.columns[6:]) == ["measure", "value", "low", "high", "chance", "chance_low", "chance_high"]
    key = ["protocol", "seed", "party", "omega", "step", "measure"]
    assert not table.duplicated(key).any()
    assert len(table) == 3 * 2 * 4 * 4  # protocols, seeds, clients, measures
    shares = table[table["measure"].isin(["accuracy", "preserved_accuracy"])]
    assert (shares["low"] <= shares["value"]).all()
    assert (shares["value"] <= shares["high"]).all()
    success = table[table["measure"] == "success"]
    assert success["chance"].notna().all()


def test_all_protocols_are_attacked_on_the_same_rows(evaluation: Evaluation, study: Results) -> None:
    found = evaluation.tables["pgd"].query("measure == 'accuracy' and protocol == 'float'")
    again = evaluate(study, quick("pgd"), ["float"]).tables["pgd"].query("measure == 'accuracy'")
    assert found["value"].tolist() == again["value"].tolist()


def test_accuracy_of_all_rows_is_the_runs_own(study: Results) -> None:
    found = evaluate(study, chosen(["pgd"], ["pgd.omega=1", "pgd.step=1", "pgd.steps=1"]), ["float"])
    table = found.tables["pgd"].query("measure == 'accuracy'")
    for seed in (0, 1):
        own = study.run("float", seed).frame("metrics")["test_accuracy"].iloc[-1]
        assert set(table.loc[table["seed"] == seed, "value"]) == {own}


def test_costs_are_those_of_the_runs(evaluation: Evaluation, study: Results) -> None:
    assert len(evaluation.costs) == 8
    own = evaluation.costs.query("protocol == 'coarse' and seed == 1").iloc[0]
    last = study.run("coarse", 1).frame("metrics").iloc[-1]
    assert own["metric"] == "test_accuracy"
    assert (own["value"], own["seconds"]) == (last["test_accuracy"], last["time_s"])
    assert own["bytes"] == last["bytes_up"] + last["bytes_down"]


def test_what_cannot_be_attacked_is_left_out_with_the_reason(evaluation: Evaluation) -> None:
    reason = f"{NOTHING_UPLOADED['centralised']}, which gets no embedding from anybody"
    assert evaluation.left_out == {
        **{f"{kind} of alone": reason for kind in ("pgd", "smoothing", "attribution")},
        "attribution of float": "it is the reference",
        "attribution of gelu": NO_REFERENCE,
    }


def test_deeplift_is_left_out_where_it_has_no_rule(study: Results) -> None:
    options = [*QUICK["attribution"], "attribution.reference=float"]
    found = evaluate(study, chosen(["attribution"], options), ["gelu"], [0])
    assert found.left_out == {
        "attribution of gelu": "DeepLIFT has no rule for a layer of the server's model; allowed: ReLU and its like"
    }
    assert set(found.tables["attribution"]["method"]) == {"integrated_gradients", "ablation"}


def test_the_reference_is_named(evaluation: Evaluation) -> None:
    assert set(evaluation.tables["attribution"]["reference"]) == {"float"}
    text = evaluation_markdown(evaluation)
    assert "| coarse, float, deeplift |" in text
    assert "reference None" not in text


def test_the_reference_is_one_of_the_selected_protocols(study: Results) -> None:
    found = evaluate(study, quick("pgd", "attribution"), ["coarse", "gelu"], [0])
    assert set(found.tables) == {"pgd"}
    assert found.left_out["attribution of coarse"] == NO_REFERENCE


def test_files_repeat_byte_by_byte_and_can_be_read(evaluation: Evaluation, study: Results, tmp_path: Path) -> None:
    again = evaluate(Results.open(study.folder), quick("pgd", "smoothing", "attribution"))
    first, second = (save(found, tmp_path / name) for name, found in (("a", evaluation), ("b", again)))
    names = ["pgd.parquet", "smoothing.parquet", "attribution.parquet", "evaluate.md", "tables.json"]
    assert [path.name for path in first] == names
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(first, second, strict=True))
    for path in first[:3]:
        pd.testing.assert_frame_equal(pd.read_parquet(path), evaluation.tables[path.stem], check_dtype=False)


def test_the_page_has_every_attack_beside_accuracy_seconds_and_bytes(evaluation: Evaluation) -> None:
    text = evaluation_markdown(evaluation)
    for title in ("## PGD on one client's upload", "## certified radius", "## attributions of uploaded elements"):
        assert title in text
    assert "| protocol, omega, step | accuracy | preserved accuracy | attack success |" in text
    assert "| test accuracy | seconds | bytes |" in text
    assert "| float, 1, 0.5 |" in text
    assert "- pgd of alone: all features are at the server" in text


def test_a_named_reference_is_compared_with(study: Results) -> None:
    found = evaluate(study, chosen(["attribution"], ["attribution.reference=coarse", "attribution.method=ablation"]))
    assert set(found.tables["attribution"]["protocol"]) == {"float", "gelu"}
    assert found.left_out["attribution of coarse"] == "it is the reference"


def test_other_widths_than_the_references_are_left_out(tmp_path: Path) -> None:
    entries = {"float": {"kind": "synchronous"}, "heads": {"kind": "fdml", "models": HEADS}}
    options = [*QUICK["attribution"], "attribution.reference=float"]
    found = evaluate(finished(entries, tmp_path / "study"), [*quick("pgd"), *chosen(["attribution"], options)])
    assert found.left_out["attribution of heads"].startswith("its clients upload other embeddings")


def test_a_regression_has_no_classes_to_mistake(tmp_path: Path) -> None:
    import numpy as np

    x = np.random.default_rng(0).normal(size=(80, 8))
    np.savez(tmp_path / "rows.npz", x=x, y=x[:, 0])
    results = finished(
        {"float": {"kind": "synchronous"}}, tmp_path / "s", data={"file": str(tmp_path / "rows.npz"), "label": "y"}
    )
    with pytest.raises(ResultsError, match="a regression has no classes to mistake"):
        evaluate(results, quick("pgd"), ["float"], needed=True)


@pytest.mark.parametrize(
    ("kinds", "options", "words"),
    [
        (["pdg"], [], "there is no attack 'pdg'.*\n  allowed: pgd, smoothing"),
        (
            [],
            ["pgd.omga=1"],
            "there is no option of pgd 'omga'\n  allowed: client, omega,.*\n  remedy: did you mean 'omega'",
        ),
        (["smoothing"], ["pgd.omega=1"], "there is no attack 'pgd'\n  allowed: smoothing"),
        ([], ["pgd.omega=-1"], "--set pgd.omega.0: -1 is out of range\n  allowed: a number above 0"),
        ([], ["pgd.rows=1,2"], "pgd.rows takes one value, not 2"),
        ([], ["pgd.norm=l3"], "--set pgd.norm: 'l3' is not one of the allowed words\n  allowed: linf, l2"),
        ([], ["pgd.rows=1", "pgd.rows=2"], "pgd.rows is given twice"),
        ([], ["omega=1"], "'omega' names no option of an attack\n  allowed: ATTACK.OPTION=VALUE"),
        ([], ["pgd.omega"], "the key or its values are missing"),
        ([], ["smoothing.alpha=0.7"], "0.7 is out of range\n  allowed: a number above 0 and at most 0.5"),
        ([], ["pgd.kind=pgd"], "there is no option of pgd 'kind'"),
    ],
)
def test_wrong_attacks_and_options_are_refused(kinds: list[str], options: list[str], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        chosen(kinds, options)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("pgd.client=9", "--set pgd: there is no client 9\n  allowed: 1 to 4, or each"),
        ("attribution.reference=flaot", "--set attribution: there is no protocol 'flaot'\n  allowed: float, coarse"),
    ],
)
def test_options_that_do_not_fit_the_results_are_refused(study: Results, option: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        evaluate(study, chosen([option.partition(".")[0]], [option]))


def test_one_stated_client_attacks(study: Results) -> None:
    found = evaluate(study, chosen(["pgd"], [*QUICK["pgd"], "pgd.client=3"]), ["float"])
    assert set(found.tables["pgd"]["party"]) == {"client-3"}


def damaged(study: Results, place: Path) -> Path:
    shutil.copytree(study.folder, place)
    return place / "float" / "seed-0"


def test_tampered_or_missing_weights_end_in_one_error(study: Results, tmp_path: Path) -> None:
    weights = damaged(study, tmp_path / "study") / "weights.safetensors"
    weights.write_bytes(b"none")
    with pytest.raises(ResultsError, match=r"weights\.safetensors"):
        evaluate(Results.open(tmp_path / "study"), quick("pgd"))
    weights.unlink()
    with pytest.raises(ResultsError, match=r"weights\.safetensors"):
        evaluate(Results.open(tmp_path / "study"), quick("pgd"))


def test_failed_runs_are_left_out(study: Results, tmp_path: Path) -> None:
    page = damaged(study, tmp_path / "study") / "run.json"
    info = json.loads(page.read_text())
    page.write_text(json.dumps({**info, "status": "diverged", "stop_reason": None, "error": "the loss became nan"}))
    results = Results.open(tmp_path / "study")
    with pytest.raises(ResultsError, match=r"nothing could be attacked \(float, seed 0: diverged\)"):
        evaluate(results, quick("pgd"), ["float"], [0])
    found = evaluate(results, quick("pgd", "attribution"), ["float", "coarse"])
    assert set(found.tables["pgd"].query("protocol == 'float'")["seed"]) == {1}
    reason = "there is nothing to compare with: float: there is no finished run with seed 0"
    assert found.left_out["attribution of coarse"] == reason


def test_timing_alone_cannot_be_attacked(tmp_path: Path) -> None:
    from tiny_worlds import raw

    from vflsim.scenario import load

    run_study(load(raw("synchronous", seeds=[0])), tmp_path / "timed", timing_only=True)
    with pytest.raises(ResultsError, match="the run has no weights: it simulated the timing alone"):
        evaluate(Results.open(tmp_path / "timed"), quick("pgd"))


def test_every_kind_with_uploads_stands_in_the_tables_of_leakage() -> None:
    """A new protocol is attacked, too: docs/leakage.md has the tables of this scenario."""
    kinds = {entry.protocol.kind for entry in load("leakage_protocols").protocols.values()}
    left_out = NOTHING_UPLOADED.keys() - {"secureboost", "he_lr"}  # which show sums that are decrypted
    assert kinds == {str(entry["kind"]) for entry in KINDS.values()} - left_out
