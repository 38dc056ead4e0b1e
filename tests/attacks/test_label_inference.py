"""Label inference by clients: from honest gradients, from noise, and from their own models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from attacked_runs import finished
from protocols_by_kind import KINDS
from scipy.stats import mannwhitneyu
from sklearn.metrics import balanced_accuracy_score
from toy_views import view

from vflsim.attacks import chosen, evaluate
from vflsim.attacks.label_inference import is_gradient
from vflsim.attacks.label_scores import (
    applies,
    auc,
    balanced_accuracy,
    class_scores,
    known_rows,
    named_accuracy,
    unaided_scores,
)
from vflsim.attacks.probes import by_chance
from vflsim.errors import ResultsError
from vflsim.finished import Results, TrainedModels, stored_scenario
from vflsim.scenario import ScenarioData

DIGITS = {"data": {"name": "digits", "train_rows": 600}, "evaluate": {"every": "40 rounds"}, "training__batch": 60}
CANCER = {
    "data": {"name": "breast_cancer"},
    "evaluate": {"every": "40 rounds"},
    "training__batch": 60,
    "partition": {"clients": 2, "by": "columns"},
}
VIEWED = {"record": {"tables": "summary", "views": "400 rows"}, "stop": {"rounds": 40}}


def inferred(folder: Path, entry: dict[str, object], known: int = 4, **said: object) -> pd.DataFrame:
    results = finished({"it": entry}, folder / "study", **VIEWED, **said)  # type: ignore[arg-type]
    options = ["label_inference.client=1", f"label_inference.known={known}"]
    return evaluate(results, chosen(["label_inference"], options)).tables["label_inference"]


def singly(table: pd.DataFrame) -> pd.DataFrame:
    """The attempts one by one, without what was chosen among them, by view and method."""
    return table[table["view"] != "strongest"].set_index("method")


def test_honest_gradients_of_ten_classes_give_labels_away(tmp_path: Path) -> None:
    table = singly(inferred(tmp_path, {"kind": "synchronous"}, **DIGITS))
    assert (table["measure"] == "balanced_accuracy").all()
    assert (table["chance"] == 0.1).all()
    assert (table["chance_low"] < 0.1).all()
    assert (table["chance_high"] > 0.1).all()
    assert table.loc["cosine", "low"] > 0.7
    assert table.loc["norm", "value"] > table.loc["norm", "chance"]
    assert (table.loc[["completion", "untrained"], "low"] > table.loc[["completion", "untrained"], "chance_high"]).all()
    assert list(zip(table["view"], table.index, strict=True)) == [
        ("gradient", "norm"), ("gradient", "clusters"), ("gradient", "cosine"), ("gradient", "spreading"),
        ("gradient", "regression"),
        ("own model", "completion"), ("own model", "untrained"), ("everything", "regression"),
    ]  # fmt: skip
    assert set(table["epochs"]) == {"last"}  # the run has kept no more


def test_honest_gradients_of_two_classes_have_an_auc(tmp_path: Path) -> None:
    table = singly(inferred(tmp_path, {"kind": "synchronous"}, **CANCER))
    assert (table["measure"] == "auc").all()
    assert (table["chance"] == 0.5).all()
    assert table.loc["cosine", "low"] > 0.95


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("kind", "view"),
    [
        ("easter", "gradient"),
        ("fdml", "gradient"),
        ("agg_vfl", "gradient"),
        ("vimadmm", "admm_variables/duals"),
        ("vimadmm_j", "admm_variables/duals"),
    ],
)
def test_gradients_by_logits_give_every_label_away_without_knowing_any(kind: str, view: str, tmp_path: Path) -> None:
    entry = {**KINDS[kind], "evaluate": {"every": "12 rounds"}, "stop": {"rounds": 12}}
    table = inferred(tmp_path, entry, known=0, **DIGITS)
    sign = table[(table["method"] == "sign") & (table["view"] == view)]
    assert sign[["measure", "known", "value", "low"]].to_numpy().tolist() == [["balanced_accuracy", 0, 1.0, 1.0]]
    assert {*singly(table).index} == {"sign", "clusters"}  # norms of several classes need known rows


def test_gradients_of_embeddings_give_labels_away_without_knowing_any(tmp_path: Path) -> None:
    """Of two classes: the direction splits them; which half is which remains open."""
    table = singly(inferred(tmp_path, {"kind": "synchronous"}, known=0, **CANCER))
    assert set(table.index) == {"norm", "clusters"}
    assert table.loc["clusters", "low"] > 0.9 > table.loc["clusters", "chance_high"]


def test_where_there_is_no_gradient_only_the_own_model_remains(tmp_path: Path) -> None:
    table = inferred(tmp_path, {"kind": "c_vfl"}, **DIGITS)
    assert {*singly(table).index} == {"completion", "untrained"}
    assert table.iloc[-1]["chosen"] == "own model, last, completion"


def test_clients_at_the_server_are_no_attackers(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no client of it is apart"):
        inferred(tmp_path, {"kind": "centralised"}, **DIGITS)


def test_too_few_rows_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"only [0-3] recorded rows of a class have arrived, and 4 are known"):
        evaluate(
            finished({"it": {"kind": "synchronous"}}, tmp_path / "few", record={"views": 20}),
            chosen(["label_inference"], ["label_inference.known=4"]),
        )


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("method", ["norm", "cosine", "clusters", "spreading", "regression"])
def test_noise_gives_no_labels_away(method: str, classes: int) -> None:
    """Of 16 gradients of noise, all but 3 are within 95 % of permuted labels: fewer are with probability 0.007."""
    outside, judge = 0, auc if classes == 2 else balanced_accuracy
    for seed in range(16):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal((250, 8)), rng.integers(classes, size=250)
        known, others = known_rows(y, classes, 4, rng)
        scores = class_scores(x, y[known], known, classes, method)[others]  # type: ignore[arg-type]
        low, high = by_chance(lambda order, s=scores, t=y[others]: judge(s, t[order]), len(others), rng)  # type: ignore[misc]
        assert low < 1 / classes < high
        outside += not low <= judge(scores, y[others]) <= high
    assert outside <= 3


def test_the_scores_are_those_of_libraries() -> None:
    rng = np.random.default_rng(1)
    scores, two, ten = rng.integers(5, size=(80, 10)).astype(float), rng.integers(2, size=80), rng.integers(10, size=80)
    difference = scores[:, 1] - scores[:, 0]
    statistic = mannwhitneyu(difference[two == 1], difference[two == 0]).statistic
    assert auc(scores[:, :2], two) == pytest.approx(statistic / ((two == 1).sum() * (two == 0).sum()))
    assert balanced_accuracy(scores, ten) == pytest.approx(balanced_accuracy_score(ten, scores.argmax(1)))
    rows = rng.integers(80, size=80)
    assert balanced_accuracy(scores, ten[rows], rows) == pytest.approx(
        balanced_accuracy_score(ten[rows], scores.argmax(1)[rows])
    )


def test_lengths_and_directions_by_hand() -> None:
    x = np.array([[1.0, 0], [0, 3.0], [2.0, 0], [0, 8.0], [0, 0]])
    known, y = np.array([0, 1]), np.array([0, 1])
    assert class_scores(x, y, known, 2, "norm")[:, 1].tolist() == [1, 3, 2, 8, 0]  # class 1 is longer
    assert class_scores(x, y[::-1], known, 2, "norm")[:, 1].tolist() == [-1, -3, -2, -8, 0]
    assert class_scores(x, y, known, 2, "cosine").tolist() == [[1, 0], [0, 1], [1, 0], [0, 1], [0, 0]]


def test_labels_spread_along_a_chain_of_directions() -> None:
    """Two arcs of directions: a row at their near ends is closer to the other's known row, and takes its own label."""
    angles = np.concatenate([np.linspace(0, 1.4, 15), np.linspace(2.0, 2.4, 5)])
    x = np.stack([np.cos(angles), np.sin(angles)], 1) * np.arange(1, 21)[:, None]
    known, y, truth = np.array([0, 15]), np.array([0, 1]), np.repeat([0, 1], [15, 5])
    assert class_scores(x, y, known, 2, "cosine").argmax(1).tolist() != truth.tolist()
    assert class_scores(x, y, known, 2, "spreading").argmax(1).tolist() == truth.tolist()


def test_signs_by_hand() -> None:
    """Gradients by logits are softmax − onehot: of ten classes, and σ − y of two."""
    rng = np.random.default_rng(2)
    o, ten, two = rng.standard_normal((50, 10)), rng.integers(10, size=50), rng.integers(2, size=50)
    softmax = np.exp(o) / np.exp(o).sum(1, keepdims=True)
    scores = unaided_scores(softmax - np.eye(10)[ten], np.bincount(ten), "sign", 0)
    assert balanced_accuracy(scores, ten) == 1
    assert balanced_accuracy(-scores, ten) < 0.5
    slope = 1 / (1 + np.exp(-o[:, :1])) - two[:, None]
    assert auc(unaided_scores(slope, np.bincount(two), "sign", 0), two) == 1


def test_the_rarer_class_has_the_longer_gradients() -> None:
    x = np.array([[3.0, 0], [0, 1.0]])
    assert unaided_scores(x, np.array([9, 4]), "norm", 0)[:, 1].tolist() == [3, 1]
    assert unaided_scores(x, np.array([4, 9]), "norm", 0)[:, 1].tolist() == [-3, -1]


def test_clusters_have_the_names_that_suit_them_best() -> None:
    truth = np.array([0, 0, 1, 1, 2, 2])
    assert named_accuracy(np.eye(3)[[2, 2, 0, 0, 1, 1]], truth) == 1
    assert named_accuracy(np.eye(3)[[2, 2, 0, 0, 0, 1]], truth) == pytest.approx(2.5 / 3)
    assert named_accuracy(np.eye(3)[[0] * 6], truth) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("method", "known", "width", "classes", "does"), [
    ("sign", 0, 10, 10, True), ("sign", 4, 10, 10, False), ("sign", 0, 16, 10, False), ("sign", 0, 1, 2, True),
    ("norm", 0, 16, 2, True), ("norm", 0, 16, 3, False), ("norm", 1, 16, 3, True),
    ("clusters", 0, 16, 3, True), ("clusters", 1, 16, 3, True), ("cosine", 0, 16, 2, False),
    ("regression", 0, 16, 2, False), ("regression", 1, 16, 2, True),
])  # fmt: skip
def test_methods_apply_where_they_are_defined(method: Any, known: int, width: int, classes: int, does: bool) -> None:
    assert applies(method, known > 0, width, classes) == does


@pytest.mark.filterwarnings("error")
def test_fewer_directions_than_classes_are_clusters_without_a_warning() -> None:
    x = np.repeat(np.eye(2), 6, axis=0)
    scores = unaided_scores(x, np.array([4, 4, 4]), "clusters", 0)
    assert (scores[:6] == scores[0]).all()
    assert (scores[6:] == scores[6]).all()
    assert (scores[0] != scores[6]).any()


def test_noise_has_no_clusters() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((300, 8)), rng.integers(3, size=300)
    scores = unaided_scores(x, np.bincount(y), "clusters", 0)
    low, high = by_chance(lambda order: named_accuracy(scores, y[order]), 300, rng)
    assert low - 0.02 <= named_accuracy(scores, y) <= high + 0.02


def test_known_rows_are_as_many_of_each_class() -> None:
    labels = np.array([0] * 5 + [1] * 9 + [2] * 4)
    known, others = known_rows(labels, 3, 3, np.random.default_rng(0))
    assert np.bincount(labels[known]).tolist() == [3, 3, 3]
    assert sorted([*known, *others]) == list(range(18))
    with pytest.raises(ValueError, match="only 4 recorded rows of a class have arrived, and 4 are known"):
        known_rows(labels, 3, 4, np.random.default_rng(0))
    assert len(known_rows(labels[:3], 3, 0, np.random.default_rng(0))[1]) == 3
    with pytest.raises(ValueError, match="only 2 recorded rows have arrived, and there are 3 classes"):
        known_rows(labels[:2], 3, 0, np.random.default_rng(0))


def test_which_views_are_gradients() -> None:
    integers = torch.zeros(4, 2, dtype=torch.int32)
    assert is_gradient(view("client-1", "server", "gradient"))
    assert is_gradient(view("client-1", "server", "admm_variables", "duals"))
    assert not is_gradient(view("client-1", "server", "shared_values", "client-2"))
    assert not is_gradient(view("client-1", "server", "shared_values", "server"))
    assert not is_gradient(view("client-1", "client-2", "data_share", "", integers))


def test_clusters_are_named_by_known_rows() -> None:
    """Of two tight groups one row each is known."""
    x = np.array([[1.0, 0.1], [1.0, 0.0], [0.0, 2.0], [0.1, 2.0]])
    for classes in ([0, 1], [1, 0]):
        scores = class_scores(x, np.array(classes), np.array([0, 2]), 2, "clusters")
        assert scores.argmax(1).tolist() == np.repeat(classes, 2).tolist()


KEPT = {"record": {"tables": "summary", "views": {"rows": 400, "keep": "all"}}, "stop": {"rounds": 40}}


@pytest.fixture(scope="module")
def of_all_epochs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("kept") / "study"
    halves: dict[str, Any] = {**KEPT, **DIGITS, "partition": {"clients": 2, "by": "columns"}}
    results = finished({"it": {"kind": "fedbcd", "local_steps": 3}}, folder, **halves)
    return evaluate(results, chosen(["label_inference"], ["label_inference.epochs=last,all"])).tables["label_inference"]


def test_directions_of_all_epochs_give_more_labels_away_than_the_last(of_all_epochs: pd.DataFrame) -> None:
    one = of_all_epochs[of_all_epochs["party"] == "client-1"].set_index(["view", "epochs", "method", "known"])["value"]
    for method, known in (("clusters", 0), ("cosine", 4), ("regression", 4)):
        assert one["gradient", "all", method, known] > one["gradient", "last", method, known] + 0.05


def test_the_strongest_attacker_is_chosen_on_other_rows(of_all_epochs: pd.DataFrame) -> None:
    """It is about as good as the best of all attempts, and finds nothing in permuted labels."""
    for (_, known), own in of_all_epochs.groupby(["party", "known"]):
        (strong,) = own[own["view"] == "strongest"].to_dict("records")
        others = own[(own["view"] != "strongest") & (own["method"] != "untrained")]
        assert strong["value"] == pytest.approx(others["value"].max(), abs=0.06)
        assert strong["chance_low"] < strong["chance"] < strong["chance_high"] < 0.35
        assert strong["low"] > strong["chance_high"]
        assert strong["chosen"] in [", ".join(row) for row in others[["view", "epochs", "method"]].to_numpy()]
        assert (strong["chance"] == 0.1) == bool(known)


TREES = {"kind": "secureboost", "depth": 3, "bins": 16, "packed": 32}


@pytest.fixture(scope="module")
def of_trees(tmp_path_factory: pytest.TempPathFactory) -> Results:
    said: dict[str, Any] = {**KEPT, **DIGITS, "partition": {"clients": 3, "by": "columns"}, "stop": {"rounds": 12}}
    return finished({"it": TREES}, tmp_path_factory.mktemp("trees") / "study", **said)


def test_nodes_that_parties_see_are_those_of_the_trees(of_trees: Results) -> None:
    """A client has the nodes of all levels but the last, and there its own splits; the server has those of all."""
    (run,) = of_trees.runs
    scenario = stored_scenario(of_trees.folder, of_trees.runs)
    models = TrainedModels(run, scenario, ScenarioData(scenario).of(scenario.training_of("it")))
    views, clients = run.views(), models.learners.clients
    right = {client: each.directions("train")[views.rows] for client, each in clients.items()}  # rows, trees, nodes
    nodes = np.zeros((len(views.rows), 12), int)
    ways = np.arange(len(views.rows))[:, None], np.arange(12)
    joined = np.any([*right.values()], axis=0)
    for level in range(2):
        nodes = 2 * nodes + joined[(*ways, 2**level - 1 + nodes)]
    for party, bits in {"server": joined, "client-2": right[2]}.items():
        (seen,) = [view for view in views.of_receiver(party) if view.kind == "nodes"]
        assert seen.arrivals is not None
        shown = np.zeros((len(views.rows), 12, 14))
        shown[seen.arrivals.row, seen.arrivals.number] = seen.arrivals.values.numpy()
        assert (shown.sum(2) == 3).all()  # one of each level
        assert (shown[:, :, 2:6].argmax(2) == nodes).all()
        assert (shown[:, :, 6:].argmax(2) == 2 * nodes + bits[(*ways, 3 + nodes)]).all()


def test_shared_nodes_of_trees_give_labels_away_and_permuted_ones_do_not(of_trees: Results) -> None:
    """Without a known label, and with four a class more than features alone do; by chance 0.1 (named groups 0.2)."""
    table = evaluate(of_trees, chosen(["label_inference"], ["label_inference.client=1"])).tables["label_inference"]
    best = table[table["view"] == "strongest"].set_index("known")
    assert best.loc[0, "chosen"] == "nodes, all, clusters"
    assert (best["low"] > best["chance_high"] + 0.2).all()
    assert (best["chance_high"] < 0.25).all()
    alone = table[table["method"] == "untrained"]["value"]
    assert best.loc[4, "low"] > alone.item() > 0.3
    assert not (table["view"] == "gradient").any()


def test_clients_together_know_as_much_as_one(of_all_epochs: pd.DataFrame) -> None:
    best = of_all_epochs[of_all_epochs["view"] == "strongest"].set_index(["party", "known"])["value"]
    assert best["clients", 4] >= best["client-1", 4] - 0.05


def test_two_clients_stand_beside_all(of_trees: Results) -> None:
    table = evaluate(of_trees, chosen(["label_inference"], ["label_inference.method=clusters"])).tables
    assert set(table["label_inference"]["party"]) == {"client-1", "client-2", "client-3", "two clients", "clients"}
