import pytest

from vflsim.vocabulary.metrics import COLUMNS, METRICS, higher_is_better


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_every_metric_has_a_direction_with_or_without_its_split(metric: str) -> None:
    up = higher_is_better(metric)
    assert up == higher_is_better(f"test_{metric}") == higher_is_better(f"validation_{metric}")
    assert up == (metric in {"accuracy", "auc", "r2"})
    assert {f"test_{metric}", f"validation_{metric}"} <= set(COLUMNS)


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown metric test_f1; allowed: loss, accuracy"):
        higher_is_better("test_f1")
