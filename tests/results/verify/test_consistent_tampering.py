"""Results that were changed together with all their digests: invariants name file, row, column, value and rule."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load as load_tensors, save
from swept import run_sweep
from tampering import edit, relist, rewrite
from tiny_worlds import raw

from vflsim.errors import DataError
from vflsim.results import verify_folder
from vflsim.results.read import Results
from vflsim.results.verify import of_run, problems_of
from vflsim.results.verify.scenario import ByScenario
from vflsim.scenario import load
from vflsim.studies.study import run_study

RUN = "wait/seed-0"
Columns = dict[str, list[Any]]


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("consistent") / "study"
    noise = {"kind": "gaussian", "clip": 1, "noise_multiplier": 2, "delta": 1e-5}
    entries = {"wait": {"kind": "synchronous", "mechanism": noise}}
    scenario = load(raw(entries, stop={"rounds": 6}, seeds=[0, 1], evaluate={"every": "2 rounds"}))
    assert run_study(scenario, folder).failures == {}
    return folder


@pytest.fixture
def study(untouched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untouched, tmp_path / "study"))


def value(table: str, column: str, row: int, new: object) -> Callable[[Path], None]:
    """Another value in a row of a table."""

    def change(folder: Path) -> None:
        rewrite(folder / RUN / f"{table}.parquet", lambda columns: columns[column].__setitem__(row, new))

    return change


def in_event(kind: str, column: str, new: Any) -> Callable[[Path], None]:
    """Another value in the second event of a kind; ``new`` may be a function of the old one."""

    def change(columns: Columns) -> None:
        row = [n for n, each in enumerate(columns["kind"]) if each == kind][1]
        columns[column][row] = new(columns[column][row]) if callable(new) else new

    return lambda folder: rewrite(folder / RUN / "events.parquet", change)


def in_round(column: str, new: Callable[[list[int]], list[int]]) -> Callable[[Path], None]:
    def change(columns: Columns) -> None:
        columns[column][3] = new(columns[column][3])

    return lambda folder: rewrite(folder / RUN / "rounds.parquet", change)


def on_page(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda folder: edit(folder / RUN / "run.json", change)


def in_weights(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def rewritten(folder: Path) -> None:
        path = folder / RUN / "weights.safetensors"
        weights = load_tensors(path.read_bytes())
        change(weights)
        path.write_bytes(save(weights, {"seed": "0"}))

    return rewritten


def more_bytes(folder: Path) -> None:
    """One byte more in an upload, and in every sum of bytes."""

    def change(columns: Columns) -> None:
        row = columns["kind"].index("transfer.embedding")
        columns["bytes"][row] += 1
        ended.append(columns["end_s"][row])

    def count(columns: Columns) -> None:
        columns["bytes_up"] = [
            sent + (time >= ended[0]) for sent, time in zip(columns["bytes_up"], columns["time_s"], strict=True)
        ]

    ended: list[float] = []
    rewrite(folder / RUN / "events.parquet", change)
    rewrite(folder / RUN / "metrics.parquet", count)


def empty_message(folder: Path) -> None:
    in_event("transfer.gradient", "bytes", 7)(folder)


def weights_of_another_seed(folder: Path) -> None:
    shutil.copy(folder / "wait/seed-1/weights.safetensors", folder / RUN)


NAN, INFINITE = float("nan"), float("inf")
CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "an accuracy above 1": (
        value("metrics", "test_accuracy", 2, 1.7),
        "(row 2, round 4): test_accuracy is 1.7, and must be from 0 to 1",
    ),
    "an accuracy below 0": (
        value("metrics", "test_accuracy", 1, -0.1),
        "(row 1, round 2): test_accuracy is -0.1, and must be from 0 to 1",
    ),
    "an accuracy of nothing": (
        value("metrics", "test_accuracy", 1, NAN),
        "(row 1, round 2): test_accuracy is nan, and must be finite: the run finished",
    ),
    "a negative loss": (value("metrics", "test_loss", 2, -3.0), "test_loss is -3, and must be at least 0"),
    "an infinite loss": (
        value("metrics", "train_loss", 2, INFINITE),
        "train_loss is inf, and must be finite: the run finished",
    ),
    "a negative age": (
        value("metrics", "row_age_mean", 1, -1.0),
        "row_age_mean is -1, and must be finite",
    ),
    "a mean above the maximum": (
        value("metrics", "client_age_mean", 1, 50.0),
        "client_age_mean is 50, and exceeds client_age_max",
    ),
    "ε that decreases": (value("metrics", "epsilon", 2, 0.0), "epsilon is 0, and is less than in the row before"),
    "ε that is negative": (
        value("metrics", "epsilon", 0, -1.0),
        "(row 0, round 0): epsilon is -1, and must be at least 0",
    ),
    "another ε of the run": (
        on_page(lambda page: page["privacy"].update(epsilon_run=0.5)),
        "and is the last, and epsilon_run in run.json is 0.5",
    ),
    "more rounds on the page": (
        on_page(lambda page: page["counts"].update(rounds=9)),
        "run.json: counts.rounds is 9, and the tables have 6",
    ),
    "more updates on the page": (
        on_page(lambda page: page["counts"].update(updates=99)),
        "run.json: counts.updates is 99, and the tables have 20",
    ),
    "fewer events on the page": (
        on_page(lambda page: page["counts"].update(events=1)),
        "run.json: counts.events is 1, and the tables have ",
    ),
    "rounds before the first": (value("metrics", "round", 0, 1), "(row 0): round is 1, and begins at 0"),
    "a stranger used": (in_round("used", lambda old: [*old, 99]), "rounds: round 3: no participants of the run: [99]"),
    "a stranger fresh": (
        in_round("fresh", lambda old: [*old, 99]),
        "rounds: round 3: fresh, but no participants of the run: [99]",
    ),
    "a client fresh twice": (
        in_round("fresh", lambda old: [*old, old[0]]),
        "rounds: round 3: a client is named twice: fresh [",
    ),
    "a client neither used nor missing": (
        in_round("used", lambda old: old[1:]),
        "rounds: round 3: neither used nor missing: [1]",
    ),
    "used and missing": (in_round("missing", lambda old: [*old, 2]), "rounds: round 3: both used and missing: [2]"),
    "a client that does not take part": (
        on_page(lambda page: page["participants"].pop()),
        "which does not take part in the run",
    ),
    "sent after it moved": (in_event("transfer.embedding", "sent_s", lambda old: old + 100), "and it starts before"),
    "sent before the run": (in_event("transfer.embedding", "sent_s", -1.0), "has no sent_s within the run"),
    "never sent": (in_event("transfer.embedding", "sent_s", NAN), "has no sent_s within the run"),
    "an upload delay that is sent": (in_event("upload", "sent_s", 0.0), "has sent_s 0.0, and only transfers are sent"),
    "a delay with bytes": (in_event("upload", "bytes", 5), "has bytes 5, and only transfers have bytes"),
    "a round before the first": (in_event("upload", "round", -4), "belongs to a round before the first"),
    "a byte more in an upload": (more_bytes, "has 1021 bytes, and the codec writes 540, 1020"),
    "a message below its header": (empty_message, "has fewer bytes than the header of a message, 60"),
    "a weight that is no number": (
        in_weights(lambda weights: weights["client-2.1.weight"][0].fill_(NAN)),
        "weights.safetensors: client-2.1.weight has the value nan, and must be finite: the run finished",
    ),
    "a narrower weight": (
        in_weights(lambda weights: weights.update({"client-2.1.weight": weights["client-2.1.weight"][:3].clone()})),
        "client-2.1.weight is float64 of shape (3, 16), the scenario's is float64 of shape (6, 16)",
    ),
    "weights of another precision": (
        in_weights(lambda weights: weights.update({"client-2.1.weight": weights["client-2.1.weight"].float()})),
        "client-2.1.weight is float32 of shape (6, 16), the scenario's is float64",
    ),
    "a weight less": (
        in_weights(lambda weights: weights.pop("client-2.1.weight")),
        "weights.safetensors: client-2.1.weight is missing, which the scenario's models have",
    ),
    "a weight more": (
        in_weights(lambda weights: weights.update({"client-2.more": weights["client-2.1.weight"].clone()})),
        "weights.safetensors: client-2.more is none of the weights of the scenario's models",
    ),
    "a stranger's weight": (
        in_weights(lambda weights: weights.update({"client-9.w": weights["client-2.1.weight"].clone()})),
        "weights.safetensors: client-9.w is of no party of the run",
    ),
    "weights of another seed": (
        weights_of_another_seed,
        "weights.safetensors: seed is 1, and the run's is 0",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_with_all_its_digests_breaks_an_invariant(name: str, study: Path) -> None:
    change, sentence = CASES[name]
    change(study)
    relist(study)
    results = Results.open(study)
    changed = results.run("wait", 0)
    problems = [*of_run(changed), *problems_of(changed, ByScenario(results))]
    assert any(sentence in problem for problem in problems), problems
    assert not any("has changed" in problem for problem in problems)


def test_rewritten_digests_alone_change_nothing(study: Path) -> None:
    rewrite(study / RUN / "metrics.parquet", lambda columns: None)
    relist(study)
    assert verify_folder(study) == []


def without_data(patch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise DataError("no such file", "mine.csv")

    patch.setattr("vflsim.results.verify.scenario.ScenarioData.of", refuse)


def test_without_its_data_a_run_is_held_against_the_other_rules(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_data(monkeypatch)
    said: list[str] = []
    assert verify_folder(study, said.append) == []
    (note,) = said
    assert note.endswith("not compared with the scenario's models and codecs: mine.csv: no such file")
    value("metrics", "test_accuracy", 1, 1.5)(study)
    relist(study)
    of_run, of_summary = verify_folder(study)
    assert "test_accuracy is 1.5, and must be from 0 to 1" in of_run
    assert of_summary.startswith("summary.parquet, row ")


def test_results_that_name_modules_are_not_compared_with_them(study: Path) -> None:
    text = (study / "scenario.yaml").read_text()
    (study / "scenario.yaml").write_text(text + 'codec: {kind: module, path: "mine:Codec"}\n')
    relist(study)
    said: list[str] = []
    assert verify_folder(study, said.append) == []
    assert "names modules, which verify does not import" in said[0]


@pytest.mark.parametrize(
    "name", ["notes.txt", "evil.py", ".hidden", "wait/seed-0.bak", "wait/notes.txt", "more/notes.txt", "data.parquet"]
)
def test_a_file_beside_runs_that_vflsim_has_not_written_is_named(name: str, study: Path) -> None:
    (study / name).parent.mkdir(exist_ok=True)
    (study / name).write_text("?")
    shown = "more" if name.startswith("more") else name
    assert verify_folder(study) == [f"{shown} is nothing that vflsim writes here, and no digest covers it"]


def test_a_hidden_file_in_a_run_is_named(study: Path) -> None:
    (study / RUN / ".hidden").write_text("?")
    assert verify_folder(study) == [f"{RUN}: .hidden is none of the files that were written here"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name",
    [
        "report.html",
        "trace.json",
        "trace.json.gz",
        "time.png",
        "time.svg",
        "time.pdf",
        ".lock",
        ".summary.md.writing-123",
        "wait/.seed-0.log",
        "wait/.seed-0.checkpoint",
        "wait/.seed-0.replaced-123",
    ],
)
def test_what_vflsim_makes_of_results_and_leaves_meanwhile_is_not_named(name: str, study: Path) -> None:
    (study / name).write_text("made")
    assert verify_folder(study) == []


def test_a_foreign_file_beside_the_points_of_a_sweep_is_named(tmp_path: Path) -> None:
    run_sweep(raw(stop={"rounds": 2}), "training.batch", [10, 20], out=tmp_path / "sweep")
    assert verify_folder(tmp_path / "sweep") == []
    (tmp_path / "sweep/batch-30").mkdir()
    (tmp_path / "sweep/report.html").write_text("made")
    assert verify_folder(tmp_path / "sweep") == ["batch-30 is nothing that vflsim writes here, and no digest covers it"]


def test_weights_that_name_no_seed_are_not_called_sound(study: Path) -> None:
    path = study / RUN / "weights.safetensors"
    path.write_bytes(save(load_tensors(path.read_bytes())))
    relist(study)
    assert verify_folder(study) == [f"{RUN}: weights.safetensors: seed is absent, and the run's is 0"]


def test_weights_name_the_seed_that_they_are_of(study: Path) -> None:
    assert all(run.weights_seed() == str(run.seed) for run in Results.open(study).runs)
