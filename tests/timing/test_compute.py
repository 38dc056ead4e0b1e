"""Compute: sampled, or FLOPs over speed."""

import math
from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from vflsim.timing.compute import COMPUTES, AnyCompute, ByOperation, ComputeKind, Flops, OperationCost, duration, law
from vflsim.timing.delays import DELAYS, Constant, Exponential, LogNormal, Uniform

adapter = TypeAdapter(AnyCompute)


def sized(flops: float, units: float = 1.0) -> OperationCost:
    return OperationCost("embed", 1, units, lambda: flops)


def test_the_table_and_the_field_list_the_same_kinds():
    assert set(get_args(ComputeKind)) == set(COMPUTES) == {*DELAYS, Flops, ByOperation}


def test_a_sampled_computation_takes_its_draw_whatever_its_size():
    compute = adapter.validate_python({"kind": "exponential", "mean": "2 ms"})
    assert law(compute) == Exponential(mean=0.002)
    assert duration(compute, 0.0017, sized(1e12)) == 0.0017


def test_flops_take_operations_over_speed():
    compute = adapter.validate_python({"kind": "flops", "rate": "2 GFLOPS"})
    assert law(compute) == Constant(value=1)
    assert duration(compute, 1.0, sized(1e6)) == 0.0005
    assert duration(compute, 1.0, sized(0)) == 0


def test_jitter_multiplies():
    compute = adapter.validate_python(
        {"kind": "flops", "rate": "1 GFLOPS", "jitter": {"kind": "lognormal", "median": 1, "sigma": 0.1}}
    )
    assert law(compute) == LogNormal(median=1, sigma=0.1)
    assert duration(compute, 1.5, sized(1e9)) == 1.5


def test_a_plain_quantity_is_a_constant_time():
    assert adapter.validate_python("1 ms") == Constant(value=0.001)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"kind": "flops"}, "Field required"),
        ({"kind": "flops", "rate": 0}, "above 0"),
        ({"kind": "flops", "rate": "1 GB/s"}, "unit 'GB/s'.*FLOPS"),
        ({"kind": "flops", "rate": 1, "jitter": -1}, "out of range"),
        ({"kind": "magic"}, "'magic'.*'flops'"),
        ({"kind": "flops", "fixed": "1 ms"}, "rate\n.*Field required"),
        ({"kind": "by_operation", "operations": {}}, "others\n.*Field required"),
        ({"kind": "by_operation", "operations": {}, "others": {"kind": "by_operation"}}, "'by_operation'.*'flops'"),
        (
            {
                "kind": "by_operation",
                "operations": {
                    "embed": {
                        "kind": "markov_modulated",
                        "states": [{"sojourn": "1 s", "delay": "1 ms"}, {"sojourn": "1 s", "delay": "2 ms"}],
                    }
                },
                "others": 0,
            },
            "embed depends on the instant",
        ),
    ],
)
def test_bad_compute_models_are_refused(bad, says):
    with pytest.raises(ValidationError, match=says):
        adapter.validate_python(bad)


def test_a_sampled_time_grows_with_the_mini_batches_and_flops_are_counted_once() -> None:
    assert duration(Constant(value=0.002), 0.002, sized(1e9, units=3.5)) == pytest.approx(0.007)
    assert duration(Flops(rate=1e9), 1.0, sized(3.5e6, units=3.5)) == pytest.approx(0.0035)


def test_an_affine_time_is_a_fixed_part_and_flops_over_speed_times_the_jitter() -> None:
    jitter = {"kind": "lognormal", "mean": 1, "sigma": 0.1}
    compute = adapter.validate_python({"kind": "flops", "fixed": "2 ms", "rate": "1 GFLOPS", "jitter": jitter})
    assert law(compute) == LogNormal(mean=1, sigma=0.1)
    assert duration(compute, 1.5, sized(4e6)) == pytest.approx(1.5 * (0.002 + 0.004))
    assert duration(Flops(fixed=0.002, rate=1e9), 1.0, sized(0)) == 0.002


def test_each_operation_takes_the_quantile_of_its_own_law() -> None:
    compute = adapter.validate_python(
        {
            "kind": "by_operation",
            "operations": {"embed": {"kind": "exponential", "mean": "1 s"}, "decode": "3 ms"},
            "others": {
                "kind": "flops",
                "fixed": 0,
                "rate": "1 GFLOPS",
                "jitter": {"kind": "uniform", "low": 1, "high": 3},
            },
        }
    )
    assert law(compute) == Uniform(low=0, high=1)

    def lasts(kind: str, level: float, units: float = 1.0) -> float:
        return duration(compute, level, OperationCost(kind, 1, units, lambda: 2e9))

    assert lasts("embed", 0.75) == pytest.approx(math.log(4))
    assert lasts("embed", 0.75, units=2) == pytest.approx(2 * math.log(4))
    assert lasts("decode", 0.75) == 0.003
    assert lasts("client_step", 0.75) == pytest.approx(2 * 2.5)


def test_operations_that_all_take_constant_times_draw_nothing() -> None:
    compute = ByOperation(operations={"embed": Constant(value=0.5)}, others=Flops(rate=1e9))
    assert law(compute) == Constant(value=1)
    assert duration(compute, 1.0, sized(1e9)) == 0.5
