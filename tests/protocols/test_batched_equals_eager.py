"""What is computed together is what is computed one by one: every protocol, model, optimiser and aggregate."""

from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from protocols_by_kind import KINDS, MODELS, SOME
from thorough import every_pair, examples, in_turn, is_thorough
from tiny_worlds import EAGER, RANDOM_TIMING, apart, data_of, parties, rounds, same_times, scores_apart, tiny, world

from vflsim.learning.batching import kernels
from vflsim.learning.batching.kernels import KERNELS
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Handle, Operation, run_together
from vflsim.learning.learners.embedding_table import SummedTable
from vflsim.learning.models.aggregates import AGGREGATES
from vflsim.learning.models.client import CLIENT_MODELS
from vflsim.learning.optimizers import OPTIMIZERS
from vflsim.protocols import PROTOCOLS
from vflsim.scenario.models import Scenario
from vflsim.simulation.build import Parties
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.vocabulary.execution_options import USUAL, Execution
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualWorld

NEAR = 1e-12
RULES: dict[str, dict[str, Any]] = {
    "plain": {"kind": "sgd", "lr": 0.1},
    "momentum": {"kind": "sgd", "lr": 0.05, "momentum": 0.8, "weight_decay": 0.01},
    "nesterov": {"kind": "sgd", "lr": 0.05, "momentum": 0.7, "nesterov": True},
    "adam": {"kind": "adam", "lr": 0.01, "weight_decay": 0.02},
}
JOINED: dict[str, Any] = {
    "mean": "mean",
    "sum": "sum",
    "max": "max",
    "concat": "concat",
    "weighted": "weighted",
    "weights": {"kind": "weighted", "weights": [3, 1, 2]},
    "learned_mean": "learned_mean",
}
ALONE = {"lenet", "resnet18", "deepfm", "wide_deep"}
"""Models for larger images or for tables, which no stack computes."""
ROWS = {"clients": 3, "by": "image_rows"}
"""Of 8 × 8 images: 24, 24 and 16 features."""
GAUSSIAN = {"kind": "gaussian", "clip": 1.0, "delta": 1e-5, "noise_multiplier": 0.5}
CODED = {name for name, said in KINDS.items() if said["kind"] == "fedvs"}
TOGETHER = [
    (protocol, model, [*RULES][(p + m // 2) % len(RULES)], [*JOINED][(p + m) % len(JOINED)])
    for (p, protocol), (m, model) in product(enumerate(name for name in KINDS if name not in CODED), enumerate(MODELS))
    if is_thorough() or (p + m) % 3 == 0
]
"""Every protocol with every third model, with ``--thorough`` with all; optimisers and aggregates take turns."""


UPDATES, ROUNDS, EVERY = (36, 12, 6) if is_thorough() else (18, 6, 3)
"""An epoch of five batches, the last of them small, and the beginning of the next; with ``--thorough`` two and more."""


def scenario_of(protocol: dict[str, Any], **changes: Any) -> Scenario:
    """Many events in random order, and an evaluation now and then."""
    alone = {"stop": {"rounds": ROUNDS}} if protocol["kind"] == "local" else {}  # without clients there are no updates
    return tiny(
        {"it": protocol},
        **{
            "timing": RANDOM_TIMING,
            "partition": ROWS,
            "data": {"name": "digits", "train_rows": 90, "test_fraction": 0.1, "validation_fraction": 0.1},
            "stop": {"updates": UPDATES},
            "evaluate": {"every": f"{EVERY} rounds"},
            **changes,
            **alone,
        },
    )


def rule(name: str) -> dict[str, Any]:
    return {"training__client_optimizer": RULES[name], "training__server_optimizer": RULES[name]}


def trained(scenario: Scenario, seed: int = 0, execution: Execution = USUAL) -> Outcome:
    """A run that ends well; its invariants are verified elsewhere."""
    outcome = run_protocol(scenario, "it", seed, data_of(scenario), execution=execution)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def assert_batched_equals_eager(scenario: Scenario, seed: int = 0) -> None:
    batched, eager = trained(scenario, seed), trained(scenario, seed, EAGER)
    assert same_times(batched, eager)
    assert scores_apart(batched, eager) <= NEAR
    assert apart(batched, eager) <= NEAR


def made_for(scenario: Scenario) -> Parties:
    """The parties of a run, before anything has happened."""
    return parties(
        scenario, "it", 0, data_of(scenario), world("virtual"), Recorder(scenario.record.tables), batched=True
    )


def stacks_of(scenario: Scenario) -> list[list[int]]:
    """Which clients are computed together."""
    learners = [node.learner for node in made_for(scenario).clients]
    stacks = {id(learner.stack): learner.stack for learner in learners if learner.stack is not None}
    return [[learner.party for learner in stack.learners] for stack in stacks.values()]


# --- everything that there is ---------------------------------------------------------------------------------------


def kinds_of(table: tuple[type, ...]) -> set[str]:
    return {each.model_fields["kind"].default for each in table}


def test_whatever_can_be_said_is_among_what_is_tested() -> None:
    assert {said["kind"] for said in KINDS.values()} == kinds_of(PROTOCOLS)
    assert {said["kind"] for said in MODELS.values()} == kinds_of(CLIENT_MODELS) - ALONE
    assert KERNELS.keys() == set(CLIENT_MODELS)
    assert {each.model_fields["kind"].default for each, stack in KERNELS.items() if isinstance(stack, str)} >= ALONE
    assert {said["kind"] for said in RULES.values()} == kinds_of(OPTIMIZERS)
    assert {name if isinstance(said, str) else said["kind"] for name, said in JOINED.items()} == kinds_of(AGGREGATES)
    sizes = [len(KINDS) - len(CODED), len(MODELS), len(RULES), len(JOINED)]
    for one, other in ((1, 2), (1, 3), (2, 3), *(((0, 1), (0, 2), (0, 3)) if is_thorough() else ())):
        assert len({(case[one], case[other]) for case in TOGETHER}) == sizes[one] * sizes[other], (one, other)
    for name in KINDS.keys() - CODED:
        models, rules, joined = ({case[part] for case in TOGETHER if case[0] == name} for part in (1, 2, 3))
        assert min(len(models), len(rules), len(joined)) >= 2
        assert {MODELS[model]["kind"] for model in models} & {"linear", "mlp", "polynomial"}


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("protocol", "model", "optimizer", "aggregate"), TOGETHER)
def test_batched_equals_eager(protocol: str, model: str, optimizer: str, aggregate: str) -> None:
    scenario = scenario_of(
        KINDS[protocol], models__client=MODELS[model], models__aggregate=JOINED[aggregate], **rule(optimizer)
    )
    assert_batched_equals_eager(scenario)


@pytest.mark.sampled(2)
@every_pair(
    protocol=sorted(CODED),
    trained={
        "linear": ("linear", "adam"),
        "unbiased": ("unbiased", "nesterov"),
        "polynomial": ("polynomial", "momentum"),
    },
    columns=["even", "uneven"],
)
def test_coded_protocols_batched_equal_eager_ones(trained: tuple[str, str], protocol: str, columns: str) -> None:
    model, optimizer = trained
    uneven = {"by": "explicit", "columns": [["0..15"], ["16..18"], ["19..34"], ["41..63"]]}
    partition = {"clients": 4, "by": "columns"} if columns == "even" else uneven
    said = {"models__client": {**MODELS[model], "embedding": 3}, "partition": partition}
    scenario = scenario_of(KINDS[protocol], **said, **rule(optimizer))
    assert sorted(stacks_of(scenario)) == ([[1, 2, 3, 4]] if columns == "even" else [[1, 3], [2], [4]])
    assert_batched_equals_eager(scenario)


class Strict(DeferredExecutor):
    """Checks of every operation that it keeps all its promises, and makes no other, and that what it reads is there."""

    def submit(self, operation: Operation[Any]) -> None:
        assert operation.inputs is not None
        assert not any(handle.ready for handle in operation.promises)
        result = operation.result
        made = {result} if isinstance(result, Handle) else set(result.values()) if isinstance(result, dict) else set()
        assert made <= set(operation.promises)
        self.submitted = [*getattr(self, "submitted", []), operation]
        super().submit(operation)

    def flush(self) -> None:
        super().flush()
        assert all(handle.ready for operation in self.submitted for handle in operation.promises)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("protocol", "execution"),
    [
        pytest.param(name, how, id=f"{name}-{word}")
        for names, how, word in ((KINDS, USUAL, "batched"), (SOME, EAGER, "eager"))
        for name in names
    ],
)
def test_every_operation_says_what_it_reads_and_keeps_its_promises(protocol: str, execution: Execution) -> None:
    scenario = scenario_of(KINDS[protocol], partition={"clients": 4, "by": "columns"}, stop={"rounds": 8})
    executor = Strict()
    outcome = run_protocol(scenario, "it", 0, data_of(scenario), world=VirtualWorld(executor), execution=execution)
    assert outcome.error is None
    assert len(executor.submitted) > (8 if protocol == "local" else 30)


# --- shapes ---------------------------------------------------------------------------------------------------------

EQUAL = [[f"{first}..{first + 11}"] for first in range(0, 60, 12)]
"""12 features for each of 5 clients."""
OTHERS = {"wait": "ignore-deadline", "own pace": "asynchronous-bounded", "by t": "t-synchronous"}
others = pytest.mark.parametrize("protocol", OTHERS.values(), ids=OTHERS)
LINEAR, MLP = MODELS["linear"], MODELS["mlp"]


@pytest.mark.sampled(3)
@every_pair(
    protocol=OTHERS,
    joined={"apart": (1, "sum"), "sum": (10_000, "sum"), "concat": (10_000, "concat")},
    model=["linear", "polynomial", "mlp"],
)
def test_clients_with_more_or_less_features(
    model: str, joined: tuple[int, str], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    per_stack, aggregate = joined
    monkeypatch.setattr(kernels, "PER_STACK", per_stack)
    uneven = {"by": "explicit", "columns": [["30..50"], ["0..2"], ["3..20", "60..63"], ["21..23"], ["51..58"]]}
    scenario = scenario_of(
        KINDS[protocol],
        partition=uneven,
        models__client=MODELS[model],
        models__aggregate=aggregate,
        **rule("momentum"),
    )
    assert sorted(map(sorted, stacks_of(scenario))) == ([[1, 3], [2, 4], [5]] if per_stack == 1 else [[1, 2, 3, 4, 5]])
    assert_batched_equals_eager(scenario)


@pytest.mark.sampled(1)
@others
@pytest.mark.parametrize("aggregate", ["mean", "max"])
def test_clients_with_different_models(aggregate: str, protocol: str) -> None:
    models = [
        {"select": "all", **LINEAR},
        {"select": "2,5", **MLP},
        {"select": "3", **MODELS["cnn"]},
        {"select": "6", **MODELS["module"]},
        {"select": "7", **MODELS["polynomial"]},
    ]
    partition = {"clients": 7, "by": "image_rows"}
    scenario = scenario_of(
        KINDS[protocol], partition=partition, models__client=models, models__aggregate=aggregate, **rule("adam")
    )
    assert sorted(map(sorted, stacks_of(scenario))) == [[1, 4], [2, 5], [7]]
    assert_batched_equals_eager(scenario)


@others
def test_clients_with_embeddings_of_different_widths(protocol: str) -> None:
    models = [{"select": "all", **LINEAR, "embedding": 4}, {"select": "2..3", **LINEAR, "embedding": 3}]
    scenario = scenario_of(KINDS[protocol], models__client=models, models__aggregate="concat", **rule("momentum"))
    assert sorted(map(sorted, stacks_of(scenario))) == [[1], [2, 3]]
    assert_batched_equals_eager(scenario)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("protocol", ["synchronous", "asynchronous", "fedbcd", "vimadmm", "fdml", "fedvs"])
def test_clients_with_different_optimisers(protocol: str) -> None:
    rules = [RULES["momentum"], {"select": "2", **RULES["adam"]}, {"select": "4", **RULES["momentum"], "lr": "m / 100"}]
    own = {"training": {"client_optimizer": rules}}
    scenario = scenario_of({**KINDS[protocol], **own}, partition={"clients": 5, "by": "explicit", "columns": EQUAL})
    assert sorted(map(sorted, stacks_of(scenario))) == [[1, 3, 5], [2], [4]]
    assert_batched_equals_eager(scenario)


@pytest.mark.sampled(2)
@in_turn(
    protocol=["asynchronous", "asynchronous-bounded", "t-synchronous", "t-synchronous-bounded"],
    batches=["shared", "own"],
    active=[False, True],
    aggregate=["mean", "sum", "weighted"],
)
def test_the_kept_sums_of_a_table_are_its_sums(protocol: str, batches: str, active: bool, aggregate: str) -> None:
    """Of seven clients one or two step at a time, so that sums change and are summed anew now and then."""
    said = {"partition": {"clients": 7, "by": "columns", "active": active}, "models__aggregate": aggregate}
    said |= {"models__active": {**MLP, "embedding": 6}} if active else {}
    scenario = scenario_of(KINDS[protocol], training__batches=batches, stop={"updates": 45}, **said, **rule("momentum"))
    server = made_for(scenario).server.learner
    assert isinstance(server.table, SummedTable)
    assert_batched_equals_eager(scenario)


@pytest.mark.sampled(2)
@in_turn(
    protocol=["synchronous", "asynchronous", "ignore-deadline", "t-synchronous-bounded"],
    batches={"kept": (34, "keep"), "dropped": (34, "drop"), "all": ("all", "keep")},
)
def test_batches_that_do_not_divide_the_rows(batches: tuple[int | str, str], protocol: str) -> None:
    batch, last = batches
    said = {"training__batch": batch, "training__last_batch": last}
    assert_batched_equals_eager(scenario_of(KINDS[protocol], **said))


@pytest.mark.sampled(2)
@in_turn(
    protocol=["asynchronous", "asynchronous-bounded", "t-synchronous", "t-synchronous-bounded"],
    model=["linear", "mlp", "cnn"],
)
def test_batches_of_ones_own(model: str, protocol: str) -> None:
    said = {"training__batches": "own", "training__batch": 17, "models__client": MODELS[model]}
    assert_batched_equals_eager(scenario_of(KINDS[protocol], **said, **rule("nesterov")))


def test_one_client_alone() -> None:
    for protocol in ("synchronous", "asynchronous"):
        assert_batched_equals_eager(scenario_of(KINDS[protocol], partition={"clients": 1, "by": "columns"}))


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("protocol", "aggregate", "training", "evaluation"),
    [
        ("synchronous", "mean", True, True),
        ("ignore-deadline", "sum", True, True),
        ("centralised", "sum", True, True),
        ("asynchronous", "mean", False, True),  # whose table needs every row
        ("t-synchronous", "sum", False, True),
        ("synchronous", "max", False, False),
        ("synchronous", "concat", False, False),
        ("synchronous", "weighted", False, False),
    ],
)
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_only_sums_are_worked_out_where_only_sums_are_needed(
    model: str, protocol: str, aggregate: str, training: bool, evaluation: bool
) -> None:
    for noisy in (False, True) if protocol != "centralised" else (False,):
        said = {**KINDS[protocol], "mechanism": GAUSSIAN} if noisy else KINDS[protocol]
        scenario = scenario_of(said, models__client=MODELS[model], models__aggregate=aggregate)
        made = made_for(scenario)
        for kind, summed in (("embed", training), ("evaluate", evaluation), ("first_fill", False)):
            operations = [
                node.learner.embed(node.batch(0)) if kind == "embed" else node.learner.embed_split("test", kind)
                for node in made.clients
            ]
            run_together(operations)
            assert all((operation.result.joint is not None) is (summed and not noisy) for operation in operations)


# --- mechanisms -----------------------------------------------------------------------------------------------------


@in_turn(
    protocol=["synchronous", "t-synchronous-bounded", "asynchronous-bounded"], model=["linear", "polynomial", "mlp"]
)
def test_clients_that_clip_and_perturb(protocol: str, model: str) -> None:
    said = {**KINDS[protocol], "mechanism": GAUSSIAN}
    scenario = scenario_of(said, models__client=MODELS[model], models__aggregate="sum", **rule("momentum"))
    assert_batched_equals_eager(scenario)


def test_who_has_had_all_releases_is_named_as_in_eager_work() -> None:
    """Of four clients the third is fastest, and so the first whose noise is used up."""
    mechanism = {"kind": "gaussian", "clip": 1.0, "delta": 1e-5, "epsilon": 5, "per": "run", "releases": 2}
    scenario = tiny(
        {"it": {"kind": "asynchronous", "mechanism": mechanism}},
        timing={"clients": [{"select": "all", "upload_delay": "9 ms"}, {"select": "3", "upload_delay": "8 ms"}]},
        stop={"rounds": 39},  # four epochs of five batches, and nine batches of the third client's third epoch
        evaluate={"every": "1000 rounds"},
    )
    errors = [run_protocol(scenario, "it", 0, data_of(scenario), execution=each).error for each in (EAGER, USUAL)]
    assert str(errors[0]) == str(errors[1])


# --- clients that come and go ---------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@in_turn(
    protocol=["synchronous", "ignore-deadline", "t-synchronous-cancel", "asynchronous-bounded"],
    interrupted=["lost", "resumed"],
)
def test_clients_that_go_down_and_come_back(protocol: str, interrupted: str) -> None:
    down = {"kind": "alternating", "interrupted": interrupted}
    down |= {"up": {"kind": "exponential", "mean": "40 ms"}, "down": {"kind": "exponential", "mean": "9 ms"}}
    timing = {**RANDOM_TIMING, "clients": [*RANDOM_TIMING["clients"], {"select": "2..N", "availability": down}]}
    said = {"models__client": LINEAR, "models__aggregate": "mean"}
    scenario = scenario_of(KINDS[protocol], timing=timing, **said, **rule("momentum"))
    assert_batched_equals_eager(scenario)


def test_rounds_that_go_on_without_somebody_are_among_those_tested() -> None:
    outcome = trained(scenario_of(KINDS["ignore-deadline"]))
    assert {len(used) for used in rounds(outcome)["used"]} >= {1, 2}
    assert all(len(used) < 3 for used in rounds(trained(scenario_of(KINDS["ignore-fastest"])))["used"])


# --- whatever the order ---------------------------------------------------------------------------------------------


PROTECTABLE = {kind.model_fields["kind"].default: kind.traits.mechanism for kind in PROTOCOLS}
"""Whether noise can protect what clients of a kind upload."""


@st.composite
def worlds(draw: st.DrawFn) -> Scenario:
    """Any protocol and model, and times at random: of each client others."""
    clients = draw(st.integers(2, 4))
    name = draw(st.sampled_from([name for name in KINDS if name not in CODED]))
    milliseconds = st.floats(0.1, 20, allow_nan=False)
    times = [
        {
            "select": str(client),
            "compute": f"{draw(milliseconds)} ms",
            "upload_delay": draw(
                st.one_of(
                    milliseconds.map(lambda mean: {"kind": "exponential", "mean": f"{mean} ms"}),
                    st.sampled_from(["0 s", "5 ms"]),
                )
            ),
        }
        for client in range(1, clients + 1)
    ]
    protocol = {**KINDS[name]}
    if "exclude" in protocol:
        protocol["exclude"] = str(draw(st.integers(1, clients)))
    for bound in ("t", "fastest"):
        if bound in protocol:
            protocol[bound] = draw(st.integers(1, clients))
    if protocol["kind"] in ("asynchronous", "t_synchronous"):
        bound = draw(st.sampled_from([None, 0, 1, 4]))
        protocol |= {} if bound is None else {"max_staleness": bound}
        protocol["first_fill"] = draw(st.sampled_from(["zeros", "upload"]))
    tables = protocol["kind"] in ("asynchronous", "t_synchronous") and not protocol.get("cancel")
    alike = draw(st.booleans())
    kinds = st.sampled_from([kind for kind in MODELS if clients < 4 or kind != "cnn"])
    models = [{"select": "all", **MODELS[draw(kinds)]}]
    if not alike:
        models.append({"select": str(draw(st.integers(1, clients))), **MODELS[draw(kinds)]})
    if PROTECTABLE[protocol["kind"]] and draw(st.integers(0, 4)) == 0:
        protocol["mechanism"] = GAUSSIAN
    return scenario_of(
        protocol,
        timing={"clients": times, "server": {"compute": draw(st.sampled_from(["0 s", "1 ms", "6 ms"]))}},
        partition={"clients": clients, "by": "image_rows"},
        models__client=models,
        models__aggregate=draw(st.sampled_from([said for said in JOINED.values() if isinstance(said, str)])),
        training__batches=draw(st.sampled_from(["shared", "own"])) if tables else "shared",
        training__batch=draw(st.sampled_from([13, 20, 60])),
        evaluate={"every": draw(st.sampled_from(["3 rounds", "7 ms", "11 updates"]))},
        **rule(draw(st.sampled_from(list(RULES)))),
    )


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds(), st.integers(0, 1000))
def test_whatever_the_order_of_events(scenario: Scenario, seed: int) -> None:
    assert_batched_equals_eager(scenario, seed)
