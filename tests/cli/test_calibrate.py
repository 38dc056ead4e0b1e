"""``vflsim calibrate``: what it prints, the timing that loads, the figure."""

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended
from tiny_worlds import raw

from vflsim import run
from vflsim.scenario import load
from vflsim.scenario.resolve import party_timings
from vflsim.studies.calibrate import calibrate


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose computations take FLOPs."""
    folder = tmp_path_factory.mktemp("calibrated") / "source"
    compute = {"kind": "flops", "fixed": "2 ms", "rate": "4 MFLOPS"}
    timing = {"server": {"compute": "1 ms"}, "clients": {"compute": compute, "link": {"latency": "3 ms"}}}
    run(raw("synchronous", timing=timing, record="events"), folder, timing_only=True, progress=False)
    return folder


def test_the_command_prints_the_fits_and_writes_a_preset_that_loads(
    vflsim: Callable[..., Ended], source: Path, tmp_path: Path, unrendered: None
) -> None:
    out, figure = tmp_path / "timing.yaml", tmp_path / "fits.png"
    ended = vflsim("calibrate", source, "--alike", "--out", out, "--figure", figure)
    assert ended.status == 0
    for word in ("server", "clients", "compute.embed", "latency", "residual p95", "GFLOPS", str(out), str(figure)):
        assert word in ended.out
    assert figure.is_file()
    again = load(raw("synchronous", timing={"preset": str(out)}))
    assert party_timings(again) == party_timings(
        load(raw("synchronous", timing=calibrate(source, alike=True).preset()["timing"]))
    )


def test_the_command_prints_the_timing_without_a_file(vflsim: Callable[..., Ended], tmp_path: Path) -> None:
    rows = [f"client-1,compute.embed,{k},{k + 0.25 + 0.001 * k}," for k in range(20)]
    (tmp_path / "log.csv").write_text("\n".join(["party,activity,start,end,bytes", *rows]))
    ended = vflsim("calibrate", tmp_path / "log.csv")
    assert ended.status == 0
    assert "sizes are not known" in ended.out
    shown = ended.out[ended.out.index("title:") :]
    (tmp_path / "timing.yaml").write_text(shown)
    assert load(raw("synchronous", timing={"preset": str(tmp_path / "timing.yaml")}))


@pytest.mark.parametrize(
    ("words", "says"), [(("--out", "t.txt"), "t.txt is no YAML file"), (("--figure", "f.jpg"), "no format of pictures")]
)
def test_the_command_refuses_files_of_other_kinds(
    vflsim: Callable[..., Ended], source: Path, words: tuple[str, ...], says: str
) -> None:
    ended = vflsim("calibrate", source, *words)
    assert ended.status == 2
    assert says in ended.err
    assert "allowed" in ended.err
