"""What ends a run: the keys of ``stop``, and a class for each. A new rule is a key, a class and a line of ``RULES``."""

import math
import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, Field
from typing_extensions import override

from vflsim.books import Counts
from vflsim.learning.learners.releases import Releases
from vflsim.stopping.end_rule import UNKNOWN, CountLimit, End, EndRule, Limit, Plain, RoundFacts, Stretch, Tally
from vflsim.stopping.precision import PrecisionField, PrecisionRule
from vflsim.vocabulary.base import Refinable
from vflsim.vocabulary.quantities import Count, PositiveNumber, PositiveSeconds
from vflsim.vocabulary.stop_rule import AnyStopRule, Row, StopRule, row_of
from vflsim.vocabulary.targets import Target, Targets, TargetWatch
from vflsim.world.kernel import Moment
from vflsim.world.party import RunContext

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


def _rule_name(name: str) -> str:
    fields = Stop.model_fields
    if not _NAME.fullmatch(name) or name in fields:
        raise ValueError(
            f"{name!r} cannot name a stop rule; allowed: 1 to 32 of a-z, 0-9, _, beginning with a letter, and none of "
            f"{', '.join(fields)}; choose another name"
        )
    return name


StopRules: TypeAlias = Annotated[dict[Annotated[str, AfterValidator(_rule_name)], AnyStopRule], Field(min_length=1)]
"""Stop rules on metrics, by names that the user chooses."""


class Stop(Refinable):
    """Stop rules: a run ends as soon as one criterion is met.

    A protocol's own ``stop`` refines the scenario's key by key; ``null`` removes a criterion.

    Examples: ``{time: 60 s}``, ``{rounds: 500, updates: 4000, epochs: 20, target: {test_accuracy: 90 %},
    wall_clock: 1 h}``, ``{precision: 1 %, epsilon: 8}``, ``{rounds: 500, rules: {stuck: {kind: no_improvement, metric:
    validation_loss, evaluations: 5}}}``
    """

    time: PositiveSeconds | None = None
    """Virtual seconds."""
    target: Targets | None = None
    """When the first of these metrics has held its value: ``{test_accuracy: 0.9, for: 5 evaluations}``."""
    rounds: Count | None = None
    """Steps of the server."""
    updates: Count | None = None
    """Steps of the clients, all together."""
    epochs: PositiveNumber | None = None
    """Passes over the training rows."""
    precision: PrecisionField | None = None
    """When the mean round duration is precise enough: ``1 %`` (after warm-up, by batch means)."""
    epsilon: PositiveNumber | None = None
    """Before a client would release so much that its ε exceeds this, at its mechanism's δ."""
    wall_clock: PositiveSeconds | None = None
    """Real seconds; makes a run non-reproducible."""
    rules: StopRules | None = None
    """Rules on metrics, by names of your choice, asked at every evaluation. Without training none of them is asked."""

    @property
    def criteria(self) -> dict[str, Any]:
        """The criteria that are set."""
        return {key: value for key in type(self).model_fields if (value := getattr(self, key)) is not None}

    def each(self, facts: RoundFacts = UNKNOWN) -> tuple[EndRule, ...]:
        """Make the rule of each criterion that is set, for one run with such rounds."""
        return tuple(RULES[key](limit, facts) for key, limit in self.criteria.items())

    @property
    def asks_variation(self) -> bool:
        """Whether a rule has to know how rounds vary, which may take longer than a short run."""
        return any(RULES[key].asks_variation for key in self.criteria)

    def plain(self) -> dict[str, Plain]:
        """Return the criteria that are set as values that JSON can hold."""
        return {rule.key: rule.plain() for rule in self.each()}


class TimeRule(Limit):
    """Ends a run at a virtual time, after all of its instant."""

    key, by, on_arrays = "time", "time", True

    @override
    def done(self, tally: Tally) -> float:
        return tally.time_s

    @override
    def begin(self, run: RunContext, elapsed: Callable[[], float]) -> None:
        remaining = max(0.0, self.limit - run.world.now())
        run.world.after(remaining, partial(run.world.finish, self.key), Moment.OBSERVE, observer=True)

    @override
    def in_chunk(self, stretch: Stretch, other: End | None) -> End | None:
        return stretch.by_time(self.limit, self.key, other)


class TargetRule(EndRule):
    """Ends a run when one of its targets has been held."""

    key, by, on_arrays = "target", "row", True
    limit: Targets

    def __init__(self, limit: Targets, facts: RoundFacts = UNKNOWN) -> None:
        super().__init__(limit, facts)
        self._watches = [TargetWatch(target) for target in limit.each]

    @override
    def after_row(self, row: Row) -> str:
        held = [watch.add(row) for watch in self._watches]
        return self.key if any(held) else ""

    @override
    def plain(self) -> Plain:
        return {**super().plain(), **({"better": dict(self.limit.better)} if self.limit.better else {})}

    @classmethod
    @override
    def later(cls, limit: Plain, before: Plain) -> bool:
        better, levels = limit.get("better", {}), before["values"]
        return limit["held"] == before["held"] and all(
            metric in levels
            and better.get(metric) == before.get("better", {}).get(metric)
            and Target(metric, levels[metric], better=better.get(metric)).met(value)
            for metric, value in limit["values"].items()
        )


class RoundsRule(CountLimit):
    """Ends a run after so many steps of the server."""

    key = "rounds"

    @override
    def rounds_at_most(self, per_epoch: int) -> float:
        return self.limit

    @override
    def done(self, tally: Counts) -> float:
        return tally.rounds


class UpdatesRule(CountLimit):
    """Ends a run after so many steps of the clients."""

    key, by = "updates", "update"

    @override
    def done(self, tally: Counts) -> float:
        return tally.updates


class EpochsRule(CountLimit):
    """Ends a run after so many passes over the training rows."""

    key = "epochs"

    @override
    def rounds_at_most(self, per_epoch: int) -> float:
        return math.ceil(self.limit * per_epoch)

    @override
    def done(self, tally: Counts) -> float:
        return self.facts.epochs(tally.rounds, tally.embeddings_used)


class EpsilonRule(EndRule):
    """Ends a run before a client's ε exceeds a limit."""

    key, by = "epsilon", "release"

    @override
    def guard(self, releases: Releases, end: Callable[[], None]) -> None:
        releases.end_at(self.limit, end)


class WallClockRule(Limit):
    """Ends a run at the first computation after so many real seconds: rounds and updates may never be counted."""

    key, by = "wall_clock", "time"

    @override
    def done(self, tally: Tally) -> float:
        return tally.wall_clock_s

    @override
    def begin(self, run: RunContext, elapsed: Callable[[], float]) -> None:
        run.computed = lambda operation: run.world.finish(self.key) if elapsed() >= self.limit else None


class MetricsRule(EndRule):
    """Ends a run by rules on its rows of metrics, each under its user's name. A resumed run asks them again."""

    key, by, on_arrays = "rules", "row", True
    limit: dict[str, StopRule]

    def __init__(self, limit: dict[str, StopRule], facts: RoundFacts = UNKNOWN) -> None:
        super().__init__(limit, facts)
        self._rows = list[Row]()

    @override
    def after_row(self, row: Row) -> str:
        self._rows.append(row_of(row))
        for name, rule in self.limit.items():
            if why := rule.asked(tuple(self._rows)):
                self.because = f"{name}: {why}"
                return name
        return ""

    @override
    def plain(self) -> Plain:
        return {
            name: {"class": f"{type(rule).__module__}:{type(rule).__qualname__}", **rule.model_dump(mode="json")}
            for name, rule in self.limit.items()
        }

    @classmethod
    @override
    def reasons(cls, limit: Plain) -> Collection[str]:
        return tuple(limit or ())

    @classmethod
    @override
    def later(cls, limit: Plain, before: Plain) -> bool:
        return all(before.get(name) == rule for name, rule in limit.items())


RULES: dict[str, type[EndRule]] = {
    "time": TimeRule,
    "target": TargetRule,
    "rounds": RoundsRule,
    "updates": UpdatesRule,
    "epochs": EpochsRule,
    "precision": PrecisionRule,
    "epsilon": EpsilonRule,
    "wall_clock": WallClockRule,
    "rules": MetricsRule,
}
"""The rule of each key of ``stop``. The first of those that end a run at one instant is its reason."""


def _keys(condition: Callable[[type[EndRule]], bool]) -> str:
    return ", ".join(key for key, rule in RULES.items() if condition(rule))


COUNTED = _keys(lambda rule: issubclass(rule, CountLimit))
"""The keys of limits of counts, for people."""
UNSCORED = _keys(lambda rule: rule.by not in ("row", "release"))
"""The keys of rules that end runs without training, for people."""
