"""When a target is reached: on rows written by hand, and on artificial curves whose plateau and noise are known."""

from collections.abc import Iterable, Iterator
from math import inf, log, nan

import numpy as np
import pytest
from pydantic import ValidationError

from vflsim.vocabulary.metrics import REPORTED
from vflsim.vocabulary.targets import USUALLY, Held, Row, Target, Targets, TargetWatch, named


def rows(values: Iterable[float], metric: str = "test_accuracy", every: float = 2.0) -> list[Row]:
    """An evaluation every 2 s, with a round between two of them, that found these values."""
    return [{"time_s": every * k, "round": k, "updates": 4 * k, metric: value} for k, value in enumerate(values)]


def watched(target: Target, found: Iterable[Row]) -> tuple[float | None, float | None]:
    """When the target was reached, and when that was known."""
    watch = TargetWatch(target)
    for row in found:
        if watch.add(row):
            assert watch.began is not None
            return watch.began["time_s"], row["time_s"]
    return None, None


def accuracy(amount: float, unit: str = "evaluations") -> Target:
    return Target("test_accuracy", 0.9, Held(amount, unit))


# --- stretches --------------------------------------------------------------------------------------------------------

SPIKE, DIP = [0.1, 0.95, 0.8, 0.9, 0.9, 0.91, 0.95], [0.9, 0.9, 0.89, 0.9, 0.9, 0.9]


@pytest.mark.parametrize(
    ("values", "target", "reached", "known"),
    [
        (SPIKE, accuracy(1), 2, 2),
        (SPIKE, accuracy(2), 6, 8),
        (SPIKE, accuracy(4), 6, 12),
        (SPIKE, accuracy(5), None, None),
        (SPIKE, accuracy(2, "seconds"), 6, 8),
        (SPIKE, accuracy(3, "seconds"), 6, 10),
        (SPIKE, accuracy(6, "seconds"), 6, 12),
        (SPIKE, accuracy(6.1, "seconds"), None, None),
        (SPIKE, accuracy(3, "rounds"), 6, 12),
        (SPIKE, accuracy(4, "rounds"), None, None),
        (DIP, accuracy(2), 0, 2),
        (DIP, accuracy(3), 6, 10),
        ([0.9, nan, 0.9, 0.9], accuracy(2), 4, 6),
        ([0.9, 0.9], accuracy(3), None, None),
    ],
)
def test_a_target_is_reached_where_the_first_stretch_that_holds_it_begins(
    values: list[float], target: Target, reached: float | None, known: float | None
) -> None:
    assert watched(target, rows(values)) == (reached, known)


def test_one_evaluation_alone_never_lasts() -> None:
    """However long ``evaluate.every`` is, a time is held by at least two evaluations."""
    assert watched(accuracy(1e-9, "seconds"), rows([0.1, 0.95, 0.1], every=50)) == (None, None)
    assert watched(accuracy(1e-9, "seconds"), rows([0.1, 0.95, 0.95], every=50)) == (50, 100)


def test_a_row_at_which_no_model_has_changed_is_no_new_evaluation() -> None:
    found = rows([0.1, 0.95, 0.95])
    again = {**found[-1], "time_s": 9.0}
    assert watched(accuracy(3), [*found, again]) == (None, None)
    assert watched(accuracy(7, "seconds"), [*found, again]) == (2, 9)  # the model has been that good all the time


def test_rows_without_a_server_step_do_not_end_a_stretch_of_the_training_loss() -> None:
    target = Target("train_loss", 0.2, Held(2, "evaluations"))
    found = rows([nan, 0.1, nan, 0.1], "train_loss")
    found[2] = {**found[2], "round": found[1]["round"]}  # only clients have stepped: there was no loss
    assert watched(target, found) == (2, 6)
    found[2] = {**found[2], "round": 1.5}
    assert watched(target, found) == (None, None)


@pytest.mark.parametrize("metric", sorted(REPORTED))
def test_a_metric_reaches_its_target_from_its_worse_side(metric: str) -> None:
    target = Target(f"test_{metric}", 0.8)
    up = metric in {"accuracy", "auc", "r2"}
    assert target.met(0.9) is target.higher_is_better is up
    assert target.met(0.8)
    assert not target.met(nan)
    assert not target.met(-inf if up else inf)


# --- artificial curves ------------------------------------------------------------------------------------------------

SEEDS, END, RISE, SIGMA = range(40), 600.0, 40.0, 0.008
EVERY = (0.5, 2.0, 10.0, 20.0)


def curve(plateau: float, every: float, seed: int) -> Iterator[Row]:
    """plateau (1 − exp(−t / 40 s)) + noise, independent from evaluation to evaluation, evaluated ``every`` so often."""
    times = np.arange(0, END + 1e-9, every)
    noise = np.random.default_rng([seed, round(10 * every)]).normal(0, SIGMA, len(times))
    values = plateau * (1 - np.exp(-times / RISE)) + noise
    for k, (at, value) in enumerate(zip(times, values, strict=True)):
        yield {"time_s": float(at), "round": k, "updates": k, "test_accuracy": float(value)}


def times_to_target(plateau: float, every: float, held: Held) -> list[float]:
    """When the seeds that reach 0.9 do."""
    found = (watched(Target("test_accuracy", 0.9, held), curve(plateau, every, seed))[0] for seed in SEEDS)
    return [at for at in found if at is not None]


def test_noise_about_a_plateau_below_the_target_fools_a_first_passage_and_not_a_held_target() -> None:
    """A plateau 2 σ below the target: 2.3 % of the evaluations pass it.

    Of 1,000 or 250 evaluations on the plateau some one does with more than 99 %, less while the curve still rises.
    Five in a row do at a given place with 0.023⁵ = 6e-9, somewhere in 40 runs of 1,200 evaluations with 3e-4.
    """
    plateau = 0.9 - 2 * SIGMA
    assert all(len(times_to_target(plateau, every, Held(1, "evaluations"))) >= 36 for every in (0.5, 2.0))
    assert [len(times_to_target(plateau, every, USUALLY)) for every in (0.5, 2.0)] == [0, 0]


def test_the_time_to_a_held_target_hardly_depends_on_how_often_is_evaluated() -> None:
    """Without noise the curve crosses 0.9 at 40 s · ln(0.93 / 0.03) = 137 s; its plateau is 3.75 σ above.

    The standard error of a mean is about 1 s; an evaluation every 20 s comes 10 s late on average.
    """
    crossing = RISE * log(0.93 / 0.03)
    first, held = (
        [float(np.mean(times_to_target(0.93, every, how))) for every in EVERY]
        for how in (Held(1, "evaluations"), USUALLY)
    )
    assert first[0] < crossing - 8  # the more often one looks, the earlier noise is taken for an arrival
    assert all(0 < at - crossing < 20 for at in held)
    assert held[-1] - held[0] < 0.6 * (first[-1] - first[0])


# --- what may be said -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "held", "text"),
    [
        ({}, USUALLY, "5 evaluations"),
        ({"for": "5 evaluations"}, USUALLY, "5 evaluations"),
        ({"for": "1 evaluation"}, Held(1, "evaluations"), "1 evaluation"),
        ({"for": "2*k evaluations"}, Held(6, "evaluations"), "6 evaluations"),
        ({"for": "20 s"}, Held(20, "seconds"), "20 s"),
        ({"for": "500 ms"}, Held(0.5, "seconds"), "0.5 s"),
        ({"for": "k min"}, Held(180, "seconds"), "180 s"),
        ({"for": "30 rounds"}, Held(30, "rounds"), "30 rounds"),
        ({"for": None}, USUALLY, "5 evaluations"),
    ],
)
def test_how_long_a_target_is_held_is_said_in_evaluations_time_or_rounds(said: dict, held: Held, text: str) -> None:
    entry = Targets.model_validate({"test_accuracy": 0.9, "test_loss": "1/k", **said}, context={"symbols": {"k": 3}})
    assert entry.each == (Target("test_accuracy", 0.9, held), Target("test_loss", 1 / 3, held))
    assert str(entry.each[0]) == f"test_accuracy ≥ 0.9 for {text}"
    assert entry.each[1].bound == "test_loss ≤ 0.333333"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"test_accuracy": 0.9, "for": 5}, "5 does not say of what; allowed: 5 evaluations, 20 s or 30 rounds"),
        ({"test_accuracy": 0.9, "for": "5"}, "'5' does not say of what"),
        ({"test_accuracy": 0.9, "for": "0 evaluations"}, "out of range"),
        ({"test_accuracy": 0.9, "for": "2.5 rounds"}, "out of range"),
        ({"test_accuracy": 0.9, "for": "-1 s"}, "out of range"),
        ({"test_accuracy": 0.9, "for": "5 epochs"}, "the unit 'epochs'"),
        ({"accuracy": 0.9}, "there is no metric 'accuracy'; allowed: train_loss, validation_loss"),
        ({"for": "20 s"}, "a target without a metric"),
        ({}, "a target without a metric"),
        ({"test_accuracy": "high"}, "the symbol 'high'"),
        (0.9, "valid dictionary"),
    ],
)
def test_what_is_no_target_is_refused(said: object, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Targets.model_validate(said)


def test_targets_of_several_places_are_each_named_once() -> None:
    one, two = Targets.model_validate({"test_accuracy": 0.9}), Targets.model_validate({"test_loss": 1, "for": "2 s"})
    again = Targets.model_validate({"test_accuracy": 0.9, "for": "5 evaluations"})
    assert named([None, one, two, again]) == (*one.each, *two.each)
