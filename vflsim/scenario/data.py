"""The data of a scenario, loaded once for all runs."""

from collections.abc import Iterable, Mapping

from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.data.shelf import SharedData, Shelf
from vflsim.learning.training import Training
from vflsim.scenario.models import Scenario


class ScenarioData:
    """The tensors of a scenario's data, loaded once for each dtype that its protocols train with.

    Scenarios with the same data load them once if they have a ``shelf`` in common. ``held`` are data that another
    process has loaded, by dtype.
    """

    def __init__(
        self, scenario: Scenario, shelf: Shelf | None = None, held: Mapping[str, LoadedData] | None = None
    ) -> None:
        self.shelf = Shelf() if shelf is None else shelf
        self._scenario, self._held = scenario, dict(held or {})
        self._keys: dict[str, str] = {}  # by dtype, of the files as they were at first

    def of(self, training: Training) -> LoadedData:
        """Return the data in the dtype of ``training``. Raises ``DataError``."""
        if training.dtype in self._held:
            return self._held[training.dtype]
        scenario = self._scenario
        return self.shelf.of(self._key(training), scenario.data, scenario.partition, training, scenario.symbols)

    def shared(self, protocols: Iterable[str]) -> dict[str, SharedData]:
        """Return the data of protocols in files that other processes can map, by dtype.

        Raises ``DataError``, and ``OSError`` if there is no room for the files.
        """
        scenario = self._scenario
        trainings = {training.dtype: training for training in map(scenario.training_of, protocols)}
        return {
            dtype: self.shelf.shared(self._key(training), scenario.data, scenario.partition, training, scenario.symbols)
            for dtype, training in trainings.items()
        }

    def _key(self, training: Training) -> str:
        scenario = self._scenario
        if training.dtype not in self._keys:
            self._keys[training.dtype] = Shelf.key(scenario.data, scenario.partition, training, scenario.symbols)
        return self._keys[training.dtype]
