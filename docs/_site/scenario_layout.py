"""Which part of a scenario stands on which page of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vflsim.codecs.encryption import CipherTimes
from vflsim.codecs.round import LatentNoise
from vflsim.learning.data.partition import Partition
from vflsim.learning.data.spec import Data, FeatureNoise
from vflsim.learning.privacy.blinding import Blinding
from vflsim.learning.training import Dropout, Training, TrainingOverride
from vflsim.protocols.pubsub_vfl import Workers
from vflsim.protocols.secureboost.protocol import Goss
from vflsim.scenario.models import ClientTiming, Scenario, ServerTiming, Timing
from vflsim.scenario.sections import Evaluate, Models, ModelsOverride, ProtocolEntry, Recording, ViewRecording
from vflsim.stopping import Stop
from vflsim.stopping.precision import Precision
from vflsim.timing.capacity import Link
from vflsim.timing.delays import State
from vflsim.timing.party import Power
from vflsim.vocabulary import Part
from vflsim.vocabulary.budgets import Budgets
from vflsim.vocabulary.targets import Targets
from vflsim.world.networks import LatencyMatrix

BEGIN = """\
A scenario is a YAML file. `vflsim check FILE` reads one and reports every mistake with line, key and remedy.
`vflsim schema` prints the JSON Schema, from which editors complete keys. These pages are made from the classes that
read a scenario.

**Quantities** carry units: `5 ms`, `300 Mbps`. A number without one is in the first unit that the key's type names.
A quantity may be a **formula** of `N` (the number of clients), of the scenario's `constants` and, in entries that
select clients, of `i` (the place in the selection, from 1) and `m` (the client's number): `(2 + 4*i/N) ms`.

**Selections** name clients: `all`, `3`, `[1, 4]`, `1..N/2`, or a name of `partition.names`. Later entries of a list
refine earlier ones.

**Short forms.** A delay may be a quantity: `5 ms` means `{kind: constant, value: 5 ms}`. A kind without other keys may
be its name: `fifo` means `{kind: fifo}`. One entry may stand for a list of one.
"""


class Sheet(NamedTuple):
    """A page: its title, what comes first, and sections, each a part or the name of a table of kinds."""

    title: str
    first: str
    sections: Mapping[str, type[Part] | str]


PAGES = {
    "index": Sheet(
        "Scenario file", BEGIN, {"Keys of a scenario": Scenario, "record": Recording, "record.views": ViewRecording}
    ),
    "data": Sheet("data, partition", "", {"data": Data, "data.noise": FeatureNoise, "partition": Partition}),
    "models": Sheet(
        "models",
        "",
        {
            "models": Models,
            "Models of clients": "client-models",
            "Aggregates": "aggregates",
            "Models of the server": "server-models",
        },
    ),
    "training": Sheet(
        "training",
        "",
        {"training": Training, "dropout": Dropout, "Losses": "losses", "Optimisers": "optimizers"},
    ),
    "protocols": Sheet(
        "protocols",
        "An entry has a name of your choice, a `kind` with its keys, and, if need be, keys that any protocol may have.",
        {
            "an entry of protocols": ProtocolEntry,
            "Kinds of protocols": "protocols",
            "goss of secureboost": Goss,
            "workers of pubsub_vfl": Workers,
            "models of a protocol": ModelsOverride,
            "training of a protocol": TrainingOverride,
        },
    ),
    "privacy": Sheet(
        "mechanism, blinding",
        "Keys of an entry of [protocols](protocols.md#protocolentry).",
        {"Mechanisms": "mechanisms", "blinding": Blinding},
    ),
    "codecs": Sheet(
        "codec",
        "A key of the scenario, or of a protocol.",
        {"Codecs": "codecs", "latent_noise": LatentNoise, "cipher times": CipherTimes},
    ),
    "timing": Sheet(
        "timing",
        "",
        {
            "timing": Timing,
            "timing.server": ServerTiming,
            "timing.clients": ClientTiming,
            "Compute models": "computes",
            "link": Link,
            "power": Power,
            "Networks": "networks",
            "latency of a network": LatencyMatrix,
            "Transports": "transports",
            "Capacities of links": "capacities",
        },
    ),
    "delays": Sheet(
        "Delays",
        "For every random time: compute times, upload delays, latencies, up and down times.",
        {"Kinds of delays": "delays", "A state of a chain": State},
    ),
    "availability": Sheet(
        "activation, availability",
        "Keys of an entry of [timing.clients](timing.md#clienttiming).",
        {"Activations": "activations", "Rates of activation": "rates", "Availabilities": "availabilities"},
    ),
    "stop": Sheet(
        "stop, target, budget, evaluate, metrics, measures",
        "",
        {
            "stop": Stop,
            "precision": Precision,
            "target": Targets,
            "budget": Budgets,
            "evaluate": Evaluate,
            "Metrics": "metrics",
            "Measures": "measures",
            "Stop rules on metrics": "stop-rules",
        },
    ),
}
ONE_OF = {
    "computes": "a compute model",
    "delays": "a delay",
    "networks": "a network",
    "transports": "a transport",
    "capacities": "a capacity that changes",
    "activations": "an activation",
    "rates": "a rate",
    "availabilities": "an availability",
    "protocols": "a protocol",
    "client-models": "a client's model",
    "server-models": "a server's model",
    "aggregates": "an aggregate",
    "optimizers": "an optimiser",
    "losses": "a loss",
    "mechanisms": "a mechanism",
    "metrics": "a metric",
    "measures": "a measure",
    "stop-rules": "a stop rule on metrics",
    "codecs": "a codec",
}
"""A kind of each table, in words; a table that contains another comes before it."""
