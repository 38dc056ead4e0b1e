"""The mean round of a coded protocol for every K and T, and which K is best."""

from typing import Any

import numpy as np
import pytest
from tiny_worlds import coded_stages_of, data_of, raw

from vflsim.analysis.findings import ClosedForm, Range
from vflsim.analysis.stages import Unanalysable
from vflsim.cli import main
from vflsim.protocols.fedvs.rounds import CodeChoice, best, by_masks, by_segments
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.studies.checks.rounds import analyse

ALIKE = {"select": "all", "upload_delay": {"kind": "exponential", "mean": 2.0}}


def scenario(client: dict[str, Any], **protocol: Any) -> Scenario:
    """Nine clients; 90 rows in batches of 20."""
    said = raw(
        {"it": {"kind": "fedvs", "K": 2, **protocol}}, partition__clients=9, timing__server={"compute": 0, "link": {}},
        timing__clients=[client], training__last_batch="drop",
    )  # fmt: skip
    return load(said)


def segments(world: Scenario) -> dict[int, CodeChoice]:
    return {choice.segments: choice for choice in by_segments(coded_stages_of(world, "it", data_of(world)))}


def harmonic(n: int) -> float:
    return float(np.sum(1 / np.arange(1, n + 1)))


def test_there_is_a_row_for_every_divisor_of_the_batch_that_leaves_enough_clients() -> None:
    found = segments(scenario(ALIKE))
    assert {k: (each.threshold, each.spared) for k, each in found.items()} == {1: (3, 6), 2: (5, 4), 4: (9, 0)}
    assert list(segments(scenario(ALIKE, T=3))) == [1, 2]
    found_masks = by_masks(coded_stages_of(scenario(ALIKE), "it", data_of(scenario(ALIKE))))
    assert [(each.segments, each.masks, each.threshold) for each in found_masks] == [(2, 1, 5), (2, 2, 7), (2, 3, 9)]


def test_alike_exponential_clients_have_harmonic_means() -> None:
    """The barrier is the longest of N shares, log₂²N · K / batch as long as uploads; then R of N uploads arrive."""
    for k, each in segments(scenario(ALIKE)).items():
        barrier = 2.0 * np.log2(9) ** 2 * k / 20 * harmonic(9)
        upload = 2.0 * (harmonic(9) - harmonic(9 - each.threshold))
        assert each.barrier_s.low == each.barrier_s.high == pytest.approx(barrier, rel=1e-5)
        assert each.upload_s.low == pytest.approx(upload, rel=1e-5)
        assert each.round_s.low == pytest.approx(barrier + upload, rel=1e-5)


def test_clients_store_a_share_of_all_data() -> None:
    columns = 64 + 9
    for k, each in segments(scenario(ALIKE)).items():
        assert each.storage == 4 * columns * -(-90 // k)


def test_the_row_of_the_scenarios_own_k_is_its_analysis() -> None:
    world = scenario({**ALIKE, "compute": "10 ms", "link": {"up": "1 Mbps", "down": "1 Mbps"}})
    form = analyse(world, "it", data_of(world)).findings[0]
    assert isinstance(form, ClosedForm)
    row = segments(world)[2]
    assert (row.round_s.low, row.round_s.high) == pytest.approx((form.mean.low, form.mean.high), rel=1e-6)
    assert row.round_s.low < row.round_s.high


def test_more_masks_change_the_upload_alone() -> None:
    world = scenario(ALIKE)
    first, *others = by_masks(coded_stages_of(world, "it", data_of(world)))
    for before, after in zip([first, *others], others, strict=False):
        assert after.barrier_s == first.barrier_s
        assert after.upload_s.low > before.upload_s.low


def test_a_small_k_is_best_where_delays_count_and_a_large_one_where_computing_does() -> None:
    """As in FedVS Fig. 3: fewer segments spare more stragglers, more of them make the work of each smaller."""
    delays = segments(scenario(ALIKE))
    assert best(list(delays.values()))[0].segments == 1
    computing = {**ALIKE, "compute": "1 s", "upload_delay": {"kind": "exponential", "mean": "1 ms"}}
    work = segments(scenario(computing))
    assert best(list(work.values()))[0].segments == 4
    # 9/K ordinary embeddings each: Σ of all clients' columns, 1/K of the rows.
    assert work[1].upload_s.low / work[4].upload_s.low == pytest.approx(4, rel=0.1)


def test_bounds_that_overlap_leave_doubt() -> None:
    def choice(k: int, low: float, high: float) -> CodeChoice:
        seconds = Range(low, high)
        return CodeChoice(k, 1, 2 * k + 1, 0, seconds, seconds, seconds, seconds, 0)

    first, rivals = best([choice(1, 3.0, 3.5), choice(2, 1.0, 2.1), choice(4, 1.5, 2.0), choice(8, 2.05, 9.0)])
    assert first.segments == 4
    assert [each.segments for each in rivals] == [2]


def test_what_has_no_closed_form_has_no_table() -> None:
    world = scenario(ALIKE, sharers=8)
    with pytest.raises(Unanalysable, match="share first"):
        by_segments(coded_stages_of(world, "it", data_of(world)))


def test_analyze_prints_both_tables(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "coded.yaml"
    path.write_text("""\
name: coded
data: {name: digits, train_rows: 90, test_fraction: 0.1}
partition: {clients: 9, by: columns}
models:
  client: {kind: linear, embedding: 6}
  aggregate: mean
  server: {kind: linear}
training:
  batch: 20
  client_optimizer: {kind: sgd, lr: 0.2}
  server_optimizer: {kind: sgd, lr: 0.1}
timing:
  clients: {select: all, upload_delay: {kind: exponential, mean: 2}}
protocols:
  code: {kind: fedvs, K: 2}
  late: {kind: fedvs, K: 2, sharers: 8}
stop: {rounds: 10}
""")
    monkeypatch.setattr("sys.argv", ["vflsim", "analyze", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.err
    assert "rounds against K, T = 1" in printed.out
    assert "rounds against T, K = 2" in printed.out
    assert "best K: 1, by the shortest mean round" in printed.out
    assert "those who share first" in printed.out
    assert "R = 2*(K + T - 1) + 1  (K = 2, T = 1, N = 9)" in printed.out
    assert printed.out.count("rounds against") == 2
