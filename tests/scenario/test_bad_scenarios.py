"""Every way to get a scenario wrong ends in one message: file, line, key, value, what is allowed or how to mend it."""

# ruff: noqa: E501  # a table reads best with one row a line

from dataclasses import dataclass
from pathlib import Path

import pytest

from vflsim.errors import ScenarioError
from vflsim.scenario import load

JARGON = ("pydantic", "Input should", "Value error", "union_tag", "https://", "discriminator", "Traceback", "NoneType")


@dataclass(frozen=True)
class Bad:
    """Replace ``old`` by ``new`` in the base scenario; the message must name ``key``, the line and the fragments."""

    name: str
    old: str
    new: str
    key: str
    fragments: tuple[str, ...]
    at: str = ""
    """The line that must be named holds this text (default: ``new``)."""


WAIT = "wait: {kind: synchronous}"
TWO = "two: {kind: t_synchronous, t: 2}"
DELAY = "{kind: exponential, mean: 2 + i}"
SELECT = "select: 3..N"
MODEL = "client: {kind: linear, embedding: 8}"
STOP = "stop: {time: 60 s}"
DATA = "name: digits"

BAD = (
    # unknown and missing words
    Bad("unknown top key", "seeds: [0, 1]", "sedes: [0, 1]", "sedes", ("'sedes'", "did you mean 'seeds'?", "record")),
    Bad("unknown inner key", "batch: 32", "bach: 32", "training.bach", ("(value 32)", "did you mean 'batch'")),
    Bad("unknown delay key", "mean: 2 + i}", "men: 2}", "upload_delay.men", ("allowed: kind, mean", "'mean'")),
    Bad("unknown protocol key", "t: 2}", "t: 2, tt: 1}", "protocols.two.tt", ("training, stop, evaluate", "cancel")),
    Bad("unknown override key", WAIT, "wait: {kind: synchronous, training: {bach: 1}}", "wait.training.bach", ("batch",)),
    Bad("missing section", "stop: {time: 60 s}\n", "", "stop", ("'stop' is missing", "add `stop: {time: 60 s}`"), "name: base"),
    Bad("missing key", "lr: 0.1}\n  server", "}\n  server", "client_optimizer.lr", ("'lr' is missing", "add `lr: …`")),
    Bad("unknown delay kind", "kind: exponential", "kind: exponental", "upload_delay.kind", ("did you mean 'exponential'",)),
    Bad("unknown protocol kind", "kind: synchronous", "kind: sync", "wait.kind", ("'sync'", "t_synchronous, asynchronous")),
    Bad("kind left out", "{kind: synchronous}", "{}", "protocols.wait", ("kind", "synchronous, ignore", "add `kind"), WAIT[:5]),
    Bad("protocol without mapping", "{kind: synchronous}", "synchronous", "protocols.wait", ("'synchronous'", "mapping")),
    Bad("unknown aggregate", "aggregate: mean", "aggregate: median", "models.aggregate", ("'median'", "concat")),
    Bad("unknown model kind", "{kind: linear, embedding", "{kind: liner, embedding", "client.kind", ("'linear'", "cnn")),
    Bad("unknown network", "timing:\n", "timing:\n  network: star\n", "timing.network", ("'star'", "fifo, dedicated"), "star"),
    Bad("unknown transport", "timing:\n", "timing:\n  transport: udp\n", "timing.transport", ("'udp'", "fluid, tcp"), "udp"),
    Bad("no window", "timing:\n", "timing:\n  transport: {kind: tcp, initial_window: 0}\n", "transport.initial_window", ("0 is out of range", "at least 1"), "tcp"),
    Bad("unknown record", "seeds:", "record: all\nseeds:", "record", ("'all'", "events, rounds, summary"), "record"),
    Bad("unknown data set", DATA, "name: digit", "data", ("'digit'", "digits"), "data:"),
    # numbers and quantities
    Bad("zero batch", "batch: 32", "batch: 0", "training.batch", ("0 is out of range", "at least 1")),
    Bad("fractional batch", "batch: 32", "batch: 2.5", "training.batch", ("2.5", "whole number")),
    Bad("true for a number", "batch: 32", "batch: true", "training.batch", ("True", "whole number")),
    Bad("word for a number", "batch: 32", "batch: many", "training.batch", ("'many'", "whole number at least 1 or 'all'")),
    Bad("symbol for a number", "batch: 32", "batch: many + 1", "training.batch", ("'many'", "N")),
    Bad("list for a number", "batch: 32", "batch: [32]", "training.batch", ("[32]", "whole number")),
    Bad("zero clients", "clients: 4", "clients: 0", "partition.clients", ("0 is out of range", "at least 1")),
    Bad("more clients than columns", "clients: 4", "clients: 65", "partition.clients", ("65 clients", "1 to 64")),
    Bad("a billion clients", "clients: 4", "clients: 1e9", "partition.clients", ("1,000,000,000", "at most")),
    Bad("clients left out", "  clients: 4\n", "", "partition.clients", ("not said", "add `clients: 4`"), "partition:"),
    Bad("shares that are too small", "clients: 4", "shares: [.5, .2, .1, .1]", "partition", ("add up to 0.9", "allowed: 1"), "partition:"),
    Bad("share that is no number", "clients: 4", "shares: [half, .2, .2, .1]", "partition.shares.0", ("'half'",), "half"),
    Bad("more shares than clients", "clients: 4", "clients: 4\n  shares: [.5, .5]", "partition", ("clients is 4, but shares has 2 shares",), "partition:"),
    Bad("negative mean", "mean: 2 + i", "mean: -0.1 s", "upload_delay.mean", ("-0.1", "above 0")),
    Bad("negative learning rate", "lr: 0.1}\n  server", "lr: -0.1}\n  server", "client_optimizer.lr", ("-0.1", "above 0")),
    Bad("NaN learning rate", "lr: 0.1}\n  server", "lr: .nan}\n  server", "client_optimizer.lr", ("nan", "above 0")),
    Bad("optimiser of a list", "{kind: sgd, lr: 0.1}\n  server", "[{kind: sgd, lr: -1}]\n  server", "client_optimizer.0.lr", ("-1", "above 0")),
    Bad("optimiser of one client", "{kind: sgd, lr: 0.1}\n  server", "[{kind: sgd, lr: 2 - m}]\n  server", "client_optimizer.0.lr", ("m = 2",)),
    Bad("clients without optimiser", "{kind: sgd, lr: 0.1}\n  server", "[{select: 2, kind: sgd, lr: 1}]\n  server", "training.client_optimizer", ("client 1 has no optimiser (3 of 4", "select: all")),
    Bad("no optimisers", "{kind: sgd, lr: 0.1}\n  server", "[]\n  server", "training.client_optimizer", ("at least 1",)),
    Bad("misspelt optimiser", "{kind: sgd, lr: 0.1}\n  server", "{kind: sgb, lr: 0.1}\n  server", "client_optimizer.kind", ("'sgb'", "'sgd'", "adam")),
    Bad("wrong dimension", "up: 300 Mbps", "up: 300 ms", "link.up", ("'ms'", "bandwidth", "Mbps")),
    Bad("unknown unit", "compute: 1 ms", "compute: 1 sec", "server.compute", ("'sec'", "ms"), "1 sec"),
    Bad("two units", "compute: 1 ms", "compute: 1 ms s", "server.compute", ("'1 ms s'",)),
    Bad("negative bandwidth", "up: 300 Mbps", "up: -3 Mbps", "link.up", ("-3 Mbps", "unlimited")),
    Bad("bandwidth without its unit", "up: 300 Mbps", "up: 300", "link.up", ("300 without a unit is 300 bps", "300 Mbps", "insist: 300 bps")),
    Bad("target above 100 %", STOP, "stop: {target: {test_accuracy: 80}}", "target.test_accuracy", ("80", "0 to 1", "write 80 %")),
    Bad("share beyond 100 %", STOP, "stop: {target: {test_accuracy: 120 %}}", "target.test_accuracy", ("120 %", "0 to 1")),
    Bad("loss in per cent", STOP, "stop: {target: {test_loss: 80 %}}", "target.test_loss", ("80 %",)),
    Bad("fraction above one", DATA, DATA + "\n  test_fraction: 2", "data.test_fraction", ("2", "at most 1"), "fraction"),
    Bad("negative noise", DATA, DATA + "\n  noise: {select: 2, sd: -1}", "data.noise.sd", ("-1", "at least 0"), "noise"),
    # formulas and selections
    Bad("noise on nobody's features", DATA, DATA + "\n  noise: {select: 5..N+1, sd: 1}", "data.noise.select", ("'5..N+1' is 5", "1..4"), "noise"),
    Bad("formula calls a function", "mean: 2 + i", "mean: exp(i)", "upload_delay.mean", ("'exp'", "no functions")),
    Bad("formula escapes", "mean: 2 + i", "mean: __import__('os')", "upload_delay.mean", ("not understood",)),
    Bad("formula with unknown symbol", "mean: 2 + i", "mean: 2 + x", "upload_delay.mean", ("'x'", "N, i, m")),
    Bad("formula without bound", "mean: 2 + i", "mean: 9**9**9", "upload_delay.mean", ("9**9**9", "exponent")),
    Bad("formula wrong for one client", "mean: 2 + i", "mean: 2 - i", "upload_delay.mean", ("'2 - i' = 0", "client 4 (i = 2")),
    Bad("entry of a list wrong for one client", MODEL, "client: {kind: mlp, hidden: [m - 1], embedding: 8}", "client.hidden.0", ("'m - 1' = 0", "client 1 (i = 1")),
    Bad("division by zero", "mean: 2 + i", "mean: 1/(m - 4)", "upload_delay.mean", ("client 3", "-1")),
    Bad("selection beyond the clients", SELECT, "select: 3..5", "clients.1.select", ("3..5", "1..4")),
    Bad("selection of nobody", SELECT, "select: N..1", "clients.1.select", ("N..1", "nobody")),
    Bad("selection of nonsense", SELECT, "select: some", "clients.1.select", ("'some'", "not known")),
    Bad("selection of a mapping", SELECT, "select: {a: 1}", "clients.1.select", ("client numbers",)),
    Bad("constant named like a unit", "partition:", "constants: {s: 1}\npartition:", "constants.s", ("unit",), "constants"),
    Bad("constant named N", "partition:", "constants: {N: 1}\npartition:", "constants.N", ("symbol",), "constants"),
    Bad("constant before its symbol", "partition:", "constants: {a: b, b: 1}\npartition:", "constants.a", ("'b'",), "const"),
    # parts that do not fit each other
    Bad("t beyond the clients", "t: 2}", "t: 5}", "protocols.two.t", ("5", "1 to 4")),
    Bad("everybody ignored", WAIT, "wait: {kind: ignore, exclude: all}", "protocols.wait", ("exclude", "4 clients")),
    Bad("ignoring by two rules", WAIT, "wait: {kind: ignore, fastest: 1, deadline: 1 s}", "wait", ("exactly one",)),
    Bad("own batches in step", "batch: 32", "batch: 32\n  batches: own", "protocols.wait", ("same batch", "shared"), WAIT),
    Bad("weights for too few", "aggregate: mean", "aggregate: {kind: weighted, weights: [1, 2]}", "aggregate", ("4", "2")),
    Bad("unequal embeddings", "embedding: 8}", "embedding: 8*m}", "models.aggregate", ("8 (client 1)", "concat"), "mean\n"),
    Bad("a client without model", MODEL, "client: [{select: 1..3, kind: linear, embedding: 8}]", "models.client", ("client 4",)),
    Bad("logistic width", "server: {kind: linear}", "server: {kind: logistic}", "models.server", ("10 wide", "not 8")),
    Bad("loss of another task", "batch: 32", "batch: 32\n  loss: mean_squared_error", "training.loss", ("multiclass",), "loss"),
    Bad("nothing stops", STOP, "stop: {}", "stop", ("no stop rule is given", "epochs")),
    Bad("metric that is none", STOP, "stop: {target: {accuracy: 0.9}}", "stop.target.accuracy", ("test_accuracy",)),
    Bad("metric of another task", STOP, "stop: {target: {test_auc: 0.9}}", "stop.target.test_auc", ("multiclass",)),
    Bad("budget of nothing", STOP, f"{STOP}\nbudget: {{}}", "budget", ("a budget of nothing", "time, rounds, bytes, energy"), "budget"),
    Bad("budget in a wrong unit", STOP, f"{STOP}\nbudget: {{time: 5 MB}}", "budget.time", ("the unit 'MB'", "units: s, ms"), "budget"),
    Bad("budget of a metric", STOP, f"{STOP}\nbudget: {{test_accuracy: 0.9}}", "budget.test_accuracy", ("time, rounds",), "budget"),
    Bad("joules that nobody counts", STOP, f"{STOP}\nbudget: {{energy: 5 J}}", "budget.energy", ("no party says", "`power`"), "budget"),
    Bad("no validation rows", STOP, "stop: {target: {validation_loss: 1}}", "validation_loss", ("validation_fraction",)),
    Bad("a reported target of another task", STOP, STOP + "\ntarget: {test_auc: 0.9}", "target.test_auc", ("multiclass",), "target:"),
    Bad("a reported one without validation rows", STOP, STOP + "\ntarget: {validation_accuracy: 0.9}", "target.validation_accuracy", ("validation_fraction",), "target:"),
    Bad("a target held for 5 of what", STOP, "stop: {target: {test_accuracy: 0.9, for: 5}}", "stop.target.for", ("5 evaluations, 20 s or 30 rounds",)),
    Bad("a target held for no evaluation", STOP, "stop: {target: {test_accuracy: 0.9, for: 0 evaluations}}", "stop.target.for", ("at least 1",)),
    Bad("how long, and no target", STOP, "stop: {target: {for: 20 s}}", "stop.target", ("without a metric",)),
    Bad("own stop of nothing", WAIT, "wait: {kind: synchronous, stop: {time: null}}", "wait.stop", ("no stop rule",)),
    Bad("two sources of data", DATA, DATA + "\n  file: a.csv", "data", ("exactly one", "name and file"), "data:"),
    Bad("names that share a folder", TWO, "WAIT: {kind: asynchronous}", "protocols.WAIT", ("'wait'", "rename")),
    # names, seeds, evaluation
    Bad("name that is a path", "name: base", "name: ../base", "name", ("'../base'", "letters")),
    Bad("protocol name that is a path", "wait:", "a/b:", "protocols.a/b", ("'a/b'", "letters")),
    Bad("no protocols", f"protocols:\n  {WAIT}\n  {TWO}\n", "protocols: {}\n", "protocols", ("too few", "at least 1")),
    Bad("one bare seed", "[0, 1]", "5", "seeds", ("5", "[5]", "0:5"), "seeds: 5"),
    Bad("seed twice", "[0, 1]", "[0, 0]", "seeds", ("0 stands twice",)),
    Bad("backward seeds", "[0, 1]", "5:0", "seeds", ("'5:0'", "0:5")),
    Bad("negative seed", "[0, 1]", "[-1]", "seeds.0", ("-1", "≥ 0")),
    Bad("no seeds", "[0, 1]", "[]", "seeds", ("an empty list", "at least 1")),
    Bad("evaluation in nonsense", "every: 5 s", "every: 5 parsecs", "evaluate.every", ("'parsecs'", "ms")),
    Bad("evaluation every zero rounds", "every: 5 s", "every: 0 rounds", "evaluate.every", ("0", "at least 1")),
    # text that is not YAML, or not only YAML
    Bad("tab", "  batch: 32", "\tbatch: 32", "", ("tab", "spaces")),
    Bad("key twice", "  by: columns", "  clients: 5", "", ("'clients' stands twice", "line 5")),
    Bad("open bracket", "seeds: [0, 1]\n", "seeds: [0, 1\n", "", ("ends inside", "close"), "seeds"),
    Bad("two documents", "stop:", "---\nstop:", "", ("second document",), "---"),
    Bad("object tag", "name: base", "name: !!python/object/apply:os.system [ls]", "", ("!!python/object/apply:os.system",)),
    Bad("unknown alias", "name: base", "name: *base", "", ("'base'", "&name")),
    Bad("colon in text", "name: base", "name: base: x", "", ("colon",)),
)  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_bad_scenario_ends_in_one_message(bad: Bad, base: str, tmp_path: Path) -> None:
    assert base.count(bad.old) == 1, "the table must change exactly one place"
    text = base.replace(bad.old, bad.new)
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ScenarioError) as caught:
        load(path)

    message = str(caught.value)
    assert caught.value.exit_code == 2
    line = text[: text.index(bad.at or bad.new)].count("\n") + 1
    assert message.startswith(f"{path}:{line}: ")
    assert bad.key in message
    for fragment in bad.fragments:
        assert fragment in message
    assert not any(word in message for word in JARGON), message


def test_enough_ways_are_tried() -> None:
    assert len({bad.name for bad in BAD}) == len(BAD) >= 45
