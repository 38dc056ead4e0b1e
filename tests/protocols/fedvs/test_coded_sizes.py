"""What is told of a coded protocol before it runs."""

from coded_worlds import coded
from tiny_worlds import data_of

from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.studies.checks.expected import expectation
from vflsim.studies.checks.sizes import Size, size_of


def size(scenario: Scenario) -> Size:
    protocol = scenario.protocols["fedvs"].protocol
    return size_of(protocol, setting(scenario, "fedvs", data_of(scenario)))


def test_the_code_is_told_in_words() -> None:
    scenario = load(coded(more={"stop": {"rounds": 5}}))
    said = expectation(scenario, "fedvs", data_of(scenario)).particulars
    assert "R = 5 of 7 clients must answer (K = 2, T = 1), 2 may straggle" in said
    assert "p = 2^31 − 1, 8 + 12 bits" in said
    assert said.endswith("each client stores 23.04 kB of shares")  # 45 rows of a segment, 128 columns, 4 bytes


def test_quantised_features_masks_and_what_a_round_computes_count_as_memory() -> None:
    scenario = load(coded())
    plain = load({**coded(), "protocols": {"fedvs": {"kind": "synchronous"}}})
    rows, columns = data_of(scenario).rows, 2 * 64
    passing = {"an evaluation", "activations of a batch"}  # the larger counts; evaluation of plain clients sums them
    held, others = (sum(n for part, n in size(each).parts.items() if part not in passing) for each in (scenario, plain))
    more = held - others
    made = setting(scenario, "fedvs", data_of(scenario))
    answers = 5 * -(-made.batch // 2)  # R coded embeddings, each of the rows of a segment
    round_ = 8 * made.widths[0] * (2 * columns + answers)  # rounded weights, and the draws that round them
    assert more == columns * (4 * rows + 8 * -(-rows // 2)) + round_
    decoded = load(coded(arithmetic="decoded"))
    assert size(decoded).bytes < size(scenario).bytes
