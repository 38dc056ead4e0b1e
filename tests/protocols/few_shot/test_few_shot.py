"""One-shot and few-shot VFL against the algorithm, written again in plain PyTorch; its messages, times and refusals.

Draws come from their streams. All else is worked out again: clusters (by scipy), both losses of FixMatch, the server's
training, attention and guesses, on a list of tensors a party.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from plain_training import Plain, join, textbook
from scipy.optimize import linear_sum_assignment
from tiny_worlds import assert_sound, data_of, events, learners, metrics, raw, run, tiny
from torch import Tensor
from torch.nn import functional as F

from vflsim.errors import ScenarioError
from vflsim.protocols.few_shot.client import clusters_of
from vflsim.scenario import load
from vflsim.streams import generator, torch_seed
from vflsim.studies.checks.data import read_and_check
from vflsim.studies.checks.estimates import expectation

KEYS = {
    "kind": "few_shot", "aligned": 40, "exchanges": 2, "epochs": 4, "server_epochs": 8, "unlabelled": 2, "weight": 0.5,
    "threshold": 0.15, "masked": 0.3, "noise": 0.2,
}  # fmt: skip


def said_of(**changes: object) -> dict:
    keys = {key: changes.pop(key) for key in [*changes] if key in KEYS}
    return raw(
        {"it": KEYS | keys},
        data={"name": "digits", "train_rows": 300, "test_fraction": 0.1},
        models__client={"kind": "mlp", "hidden": [9], "embedding": 5},
        models__aggregate="concat",
        models__server={"kind": "linear"},
        training__client_optimizer={"kind": "adam", "lr": 0.02},
        training__server_optimizer={"kind": "sgd", "lr": 0.3, "momentum": 0.5},
        evaluate={"every": "1 rounds"},
        stop={"rounds": 9},
        **changes,
    )


class Replay:
    """The algorithm on lists of tensors."""

    def __init__(self, said: dict) -> None:
        scenario = load(said)
        self.keys, self.data = said["protocols"]["it"], data_of(scenario)
        self.plain = Plain(said, scenario, "it", 0, self.data)
        self.batch, self.aligned = said["training"]["batch"], self.keys["aligned"]
        self.ids = torch.tensor(generator(0, -1, "few_shot/aligned").permutation(self.data.rows)[: self.aligned])
        every = torch.ones(self.data.rows, dtype=torch.bool)
        every[self.ids] = False
        self.others = every.nonzero().ravel()
        self.classes = int(self.plain.y.max()) + 1
        _, clients = learners(scenario, "it", 0, self.data)
        self.heads = {m: [w.clone().requires_grad_() for w in c.models["head"].module.state_dict().values()]
                      for m, c in clients.items()}  # fmt: skip
        self.local = {m: textbook(said["training"]["client_optimizer"]) for m in clients}
        self.clusters: dict[int, Tensor] = {}
        self.sure = 0

    def played(self) -> None:
        plain = self.plain
        hs = self.uploads()
        leaves = [h.requires_grad_() for h in hs]
        for m, by_h in zip(plain.clients, torch.autograd.grad(plain.loss(leaves, self.ids), leaves), strict=True):
            seed = torch_seed(0, m, "k")
            self.clusters[m] = clusters_of(by_h, self.classes, seed)
            self.trained(m, 0, self.ids, self.clusters[m])
        for k in range(1, self.keys["exchanges"]):
            hs = self.uploads()
            self.served(k, hs)
            if k + 1 < self.keys["exchanges"]:
                for place, m in enumerate(plain.clients):
                    self.trained(m, k, *self.labelled(m, self.guessed(hs, place, m)))

    def uploads(self) -> list[Tensor]:
        return [self.plain.embed(m, self.ids).detach() for m in self.plain.clients]

    def served(self, k: int, hs: list[Tensor]) -> None:
        rng = generator(0, 0, f"few_shot/train/{k}")
        for _ in range(self.keys["server_epochs"]):
            for places in np.split(rng.permutation(self.aligned), range(self.batch, self.aligned, self.batch)):
                loss = self.plain.loss([h[places] for h in hs], self.ids[places])
                self.plain.step(0, torch.autograd.grad(loss, self.plain.weights[0]))

    def trained(self, m: int, k: int, rows: Tensor, labels: Tensor) -> None:
        draw = torch.Generator().manual_seed(torch_seed(0, m, f"few_shot/{k}"))
        x, size, more = self.plain.x[m], self.batch, self.keys["unlabelled"] * self.batch
        weights = [*self.plain.weights[m], *self.heads[m]]

        def view(of: Tensor, noise: float = 0) -> Tensor:
            seen = x[of]
            if self.keys["masked"]:
                hidden = torch.rand(seen.shape, generator=draw) < self.keys["masked"]
                seen = x.mean(0) * hidden + seen * ~hidden
            if noise:
                seen = seen + noise * x.std(0) * torch.randn(seen.shape, generator=draw, dtype=torch.float64)
            h = self.plain.networks[m](self.plain.weights[m], seen)
            return F.log_softmax(h @ self.heads[m][0].T + self.heads[m][1], 1)

        for _ in range(self.keys["epochs"] * math.ceil(self.aligned / size) if len(rows) else 0):
            chosen = torch.randint(len(rows), (size,), generator=draw)
            loss = -view(rows[chosen])[torch.arange(size), labels[chosen]].mean()
            if more:
                free = self.others[torch.randint(len(self.others), (more,), generator=draw)]
                sure, likely = view(free).detach().max(1)
                there = sure.exp() >= self.keys["threshold"]
                each = -view(free, self.keys["noise"])[torch.arange(more), likely]
                loss = loss + self.keys["weight"] * each[there].sum() / more
            with torch.no_grad():
                self.local[m].step(weights, torch.autograd.grad(loss, weights))

    def guessed(self, hs: list[Tensor], place: int, m: int) -> Tensor:
        query = self.plain.embed(m, self.others).detach()
        share = F.softmax(query @ hs[place].T / hs[place].shape[1] ** 0.5, 1)
        joined = [query if j == place else share @ h for j, h in enumerate(hs)]
        model = F.softmax(self.plain.server(self.plain.weights[0], join("concat", joined, ())), 1).detach().max(1)
        seed = torch_seed(0, 0, f"few_shot/alone/{m}")
        torch.manual_seed(seed)
        linear = torch.nn.Linear(query.shape[1], self.classes, dtype=torch.float64)
        weights, rng = [*linear.parameters()], generator(0, 0, f"alone/{seed}")
        rule = textbook({"kind": "sgd", "lr": 0.3, "momentum": 0.5})
        for _ in range(self.keys["server_epochs"]):
            for places in np.split(rng.permutation(self.aligned), range(self.batch, self.aligned, self.batch)):
                loss = F.cross_entropy(hs[place][places] @ weights[0].T + weights[1], self.plain.y[self.ids[places]])
                gradients = torch.autograd.grad(loss, weights)
                with torch.no_grad():
                    rule.step(weights, gradients)
        alone = F.softmax(query @ weights[0].T + weights[1], 1).detach().max(1)
        both = (model.indices == alone.indices) & (model.values >= self.keys["threshold"])
        both &= alone.values >= self.keys["threshold"]
        self.sure += int(both.sum())
        return torch.where(both, model.indices, -1)

    def labelled(self, m: int, guesses: Tensor) -> tuple[Tensor, Tensor]:
        sure = guesses >= 0
        rows, classes = self.others[sure], guesses[sure]
        h = self.plain.embed(m, rows)
        clusters = (h @ self.heads[m][0].T + self.heads[m][1]).argmax(1)
        name = {int(c): int(torch.bincount(classes[clusters == c]).argmax()) for c in clusters.unique()}
        kept = [(int(row), name[int(c)]) for row, c in zip(self.ids, self.clusters[m], strict=True) if int(c) in name]
        return (
            torch.cat([torch.tensor([row for row, _ in kept], dtype=torch.int64), rows]),
            torch.cat([torch.tensor([label for _, label in kept], dtype=torch.int64), classes]),
        )

    def furthest(self, weights: dict[str, Tensor]) -> float:
        mine = {0: self.plain.weights[0]} | {m: [*self.plain.weights[m], *self.heads[m]] for m in self.plain.clients}
        theirs = {
            party: [w for name, w in weights.items() if name.split(".")[0] == ("server", f"client-{party}")[party > 0]]
            for party in mine
        }
        assert sum(map(len, theirs.values())) == len(weights)
        return max(
            float((one.detach() - other).abs().max())
            for party in mine
            for one, other in zip(mine[party], theirs[party], strict=True)
        )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"exchanges": 3},
        {"exchanges": 4, "masked": 0, "weight": 2},
        {"unlabelled": 0},
        {"exchanges": 3, "noise": 0, "aligned": 30},
    ],
)
def test_weights_are_those_of_the_algorithm(changes: dict) -> None:
    said = said_of(**changes)
    outcome = run(load(said))
    replay = Replay(said)
    replay.played()
    assert_sound(outcome)
    assert (replay.sure > 10) is (replay.keys["exchanges"] > 2)
    assert replay.furthest(outcome.weights) < 1e-12
    assert len(metrics(outcome)) == 1 + replay.keys["exchanges"]


def test_one_gradient_at_the_first_weights_shows_the_classes() -> None:
    """The gradients of a linear model are (p − y) W, whose directions classes have in common."""
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(6, (200,), generator=draw)
    p = F.softmax(0.1 * torch.randn(200, 6, generator=draw), 1)
    gradients = (p - F.one_hot(y, 6)) @ torch.randn(6, 16, generator=draw)
    clusters = clusters_of(1e-9 * gradients, 6, seed=1)
    counts = np.zeros((6, 6))
    np.add.at(counts, (clusters.numpy(), y.numpy()), 1)
    rows, columns = linear_sum_assignment(-counts)
    assert counts[rows, columns].sum() == 200


def test_messages_and_times_are_those_of_the_exchanges() -> None:
    scenario = tiny(
        {"it": KEYS | {"exchanges": 3}},
        timing={
            "server": {"compute": "1 s"},
            "clients": [{"select": "all", "compute": "10 s", "link": {"up": "unlimited", "down": "unlimited"}}],
        },
        stop={"rounds": 9},
        evaluate={"every": "1 rounds"},
    )
    outcome = run(scenario)
    seen = events(outcome)
    sizes = (
        seen[seen["bytes"] > 0]
        .groupby("kind", observed=True)["bytes"]
        .first()
        .rename(lambda kind: kind.removeprefix("transfer."))
    )
    header = sizes["gradient"] - 40 * 6 * 8
    rows = data_of(scenario).rows - 40
    assert 0 <= header < 200
    assert sizes["embedding"] - header == 40 * 6 * 8
    assert sizes["other_embeddings"] - header == rows * 6 * 8
    assert sizes["pseudo_labels"] - header == rows * 2
    embed, embed_rest, batch = 1, rows / 20, 20
    train = KEYS["epochs"] * math.ceil(40 / batch) * (1 + KEYS["unlabelled"])
    first = 10 * embed + 40 / batch  # a pass of the aligned rows at the server
    second = first + 10 * (train + embed + embed_rest) + (KEYS["server_epochs"] * 40 + 4 * rows) / batch
    third = second + 10 * (train + embed) + KEYS["server_epochs"] * 40 / batch
    ends = seen[seen["kind"] == "compute.server_step"]["end_s"].tolist()
    assert ends == pytest.approx([first, second, third])


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"aligned": 9}, r"aligned: 9 rows, of \d+ training rows with 10 classes\n  allowed: 10 to \d+"),
        ({"aligned": 5000}, r"aligned: 5000 rows"),
        ({"exchanges": 1}, "exchanges"),
        ({"threshold": 0}, "threshold"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict, what: str) -> None:
    with pytest.raises(ScenarioError, match=what):
        resolved(changes)


def resolved(changes: dict) -> None:
    read_and_check(tiny({"it": KEYS | changes}))


def test_a_task_without_classes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,b,y\n" + "".join(f"{i},{i % 7},{i / 3}\n" for i in range(90)))
    data = {"file": str(tmp_path / "d.csv"), "label": "y", "task": "regression"}
    scenario = tiny({"it": KEYS}, data=data, partition={"clients": 2, "by": "columns"})
    with pytest.raises(ScenarioError, match="clients guess classes, and the task is regression"):
        read_and_check(scenario)


def test_check_says_what_clients_may_learn() -> None:
    scenario = tiny({"it": KEYS})
    told = expectation(scenario, "it", data_of(scenario)).particulars
    assert "clusters of the gradient can show a client the classes of aligned rows" in told
