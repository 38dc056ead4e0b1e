"""The position of a run's timing plane: with every count, each of which tells a run that deviates."""

from dataclasses import fields

from vflsim.books.counts import Counts
from vflsim.learning.execution.operations import TimingOnlyExecutor
from vflsim.simulation.checkpoints.snapshot import Position
from vflsim.world.record import Recorder
from vflsim.world.virtual import VirtualWorld


def test_positions_differ_by_each_count() -> None:
    world, recorder = VirtualWorld(TimingOnlyExecutor()), Recorder()
    before = Position.of(world, recorder)
    for count in fields(Counts):
        other = Recorder()
        setattr(other, count.name, 3)
        assert before.differences(Position.of(world, other)) == [f"{count.name} 3, not 0"]
