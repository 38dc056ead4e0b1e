"""What the process of one party can reach: its own features and labels, and nothing of others."""

import asyncio
import gc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from live_kinds import LIVE
from protocols_by_kind import KINDS
from tiny_worlds import data_of, tiny

from vflsim.errors import ScenarioError
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.privacy.blinding import private_key
from vflsim.protocols.capabilities import Peering
from vflsim.protocols.fedvs.messages import DataShare, ModelShare
from vflsim.protocols.fedvs.shares import data_shares, model_shares
from vflsim.remote.frames import pack_message
from vflsim.remote.party import LocalParty, local_party, refuse_unfit
from vflsim.remote.private_data import PrivateData, label_splits, largest_between_clients, private_data
from vflsim.remote.world import LiveWorld
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, setting
from vflsim.world.mailbox import Mailbox
from vflsim.world.messages import Message
from vflsim.world.transport import Transport
from vflsim.world.wire import specs_of

MARK = 1000.0


def scenario_of(kind: str) -> Scenario:
    return tiny({"only": KINDS[kind]})


def marked(data: LoadedData) -> LoadedData:
    """Data whose every feature of client m is 1000 + m, and of the server 1000."""
    joint = {split: torch.full_like(tensor, MARK) for split, tensor in data.joint.items()}
    for tensor in joint.values():
        for place, columns in enumerate(data.columns):
            tensor[:, columns] = MARK + place + 1
    return data.with_joint(joint)


def told(scenario: Scenario, data: LoadedData) -> dict[int, Mapping[str, float]] | None:
    """What clients tell each other of their data."""
    protocol, resolved = scenario.protocols["only"].protocol, setting(scenario, "only", data)
    if not isinstance(protocol, Peering):
        return None
    return {client: protocol.public_facts(resolved, client) for client in resolved.clients}


def made(kind: str, party: int, data: LoadedData) -> LocalParty:
    scenario, loop = scenario_of(kind), asyncio.new_event_loop()
    try:
        world = LiveWorld(loop)
        own = private_data(data, party, label_splits(scenario.protocols["only"].protocol, party))
        resolved = replace(setting(scenario, "only", own), public=told(scenario, data))
        links = [timing.link for timing in resolved.timings]
        return local_party(
            scenario, "only", 0, resolved, party, world, lambda _: Mailbox(world),
            lambda recorder: Transport(world, resolved.network, links, 0, recorder), lambda _: None, None,
        )  # fmt: skip
    finally:
        loop.close()


def reachable(root: object) -> Iterator[Any]:
    """Every object that can be reached from ``root``, but for modules and classes."""
    seen, waiting = {id(root)}, [root]
    while waiting:
        thing = waiting.pop()
        yield thing
        for other in gc.get_referents(thing):
            if id(other) not in seen and not isinstance(other, ModuleType | type):
                if isinstance(other, dict) and "__builtins__" in other:
                    continue  # the globals of a function
                seen.add(id(other))
                waiting.append(other)


def test_kinds_that_share_more_than_messages_are_refused_with_the_reason() -> None:
    refused = sorted(set(KINDS) - set(LIVE))
    assert refused == [
        "centralised", "fedvs-finished", "he_lr", "he_lr-shares", "local", "pubsub_vfl", "pubsub_vfl-late",
        "secureboost", "secureboost-first",
    ]  # fmt: skip
    with pytest.raises(ScenarioError, match=r"live: arithmetic: decoded computes from the data and models behind"):
        refuse_unfit(scenario_of("fedvs-finished"))


@pytest.mark.sampled(24)
@pytest.mark.parametrize("party", [0, 2])
@pytest.mark.parametrize("kind", LIVE)
def test_no_party_can_reach_the_features_of_another(kind: str, party: int) -> None:
    data = marked(data_of(scenario_of(kind)))
    found = marks(reachable(made(kind, party, data).node.learner))
    own = {MARK + party} if party or data.active is not None else set()
    assert found == own


def sent(owner: LocalParty, receiver: LocalParty, message: Message) -> Message:
    """What a client gets of another's message, by way of its bytes."""
    message.sender, message.receiver = owner.node.party, receiver.node.party
    body = pack_message(message, owner.wires, 0.0)
    return receiver.reader.message(body, message.sender, message.receiver)[0]


def performed(party: LocalParty, operation: Operation[Any]) -> Any:
    party.shared.world.executor.submit(operation)
    if operation.commit is not None:
        operation.commit()
    return operation.result


def test_a_client_holds_shares_of_others_and_nothing_that_they_are_shares_of() -> None:
    data = marked(data_of(scenario_of("fedvs")))
    parties = {client: made("fedvs", client, data) for client in (1, 2, 3, 4)}
    mine, others = parties[2], {client: party for client, party in parties.items() if client != 2}
    batch, models = mine.node.batch(0), {}
    performed(mine, mine.node.learner.share_data())
    models[2] = performed(mine, mine.node.learner.share_model(0))[2]
    for client, party in others.items():
        shares = performed(party, party.node.learner.share_data())
        mine.node.learner.keep(sent(party, mine, DataShare(value=shares[2])))
        share = performed(party, party.node.learner.share_model(0))[2]
        models[client] = sent(party, mine, ModelShare(value=share, round=0)).value
    embedding = performed(mine, mine.node.learner.coded_embed(batch, models))
    assert embedding.value.shape == (len(batch.positions), 6)
    found = list(reachable((mine.node.learner, models, embedding)))
    assert marks(found) == {MARK + 2}
    elements = [each for each in found if isinstance(each, torch.Tensor) and not each.is_floating_point()]
    secrets = [thing for thing in found if type(thing).__name__ in ("DataSecret", "ModelSecret")]
    assert {secret.client for secret in secrets} == {2}
    field = mine.node.learner.plan.quantiser.field
    for client, party in parties.items():
        (quantised,) = party.node.learner.data_secret.quantised.unique().tolist()[-1:]
        values = {quantised, int(field.embed(torch.tensor(quantised)))}
        assert any(values & set(each.unique().tolist()) for each in elements) == (client == 2)


def test_masks_of_shares_are_nobodys_to_compute() -> None:
    data = data_of(scenario_of("fedvs"))
    learners = [made("fedvs", 1, data).node.learner for _ in range(2)]
    seeded = setting(scenario_of("fedvs"), "only", data)
    learners.append(scenario_of("fedvs").protocols["only"].protocol.learners(seeded, 0).clients[1])
    places = np.arange(3)
    drawn, repeated = (
        [torch.stack([data_shares((each.data_secret,), places, (holder,)) for holder in (1, 2)]) for each in learners]
        for _ in range(2)
    )
    assert all(torch.equal(*both) for both in zip(drawn, repeated, strict=True)), "repeated shares are equal"
    assert not any(torch.equal(one, other) for one, other in combinations(drawn, 2))
    models = []
    for learner in learners:
        operation = learner.share_model(0)
        operation.run()
        once, again = (
            torch.stack([model_shares((operation.result[n].value.secret,), (n - 1, 3))[0] for n in (2, 3)])
            for _ in range(2)
        )
        assert torch.equal(once, again)
        models.append(once)
    assert not any(torch.equal(one, other) for one, other in combinations(models, 2))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", LIVE)
def test_only_clients_of_protocols_that_share_labels_hold_any_and_only_of_training_rows(kind: str) -> None:
    scenario = scenario_of(kind)
    data = data_of(scenario)
    shares = {"fedbcd-recomputed", "c_vfl", "ef_vfl", "flex_vfl"}
    client = scenario.protocols["only"].protocol.participants(scenario.clients, scenario.symbols)[0]
    learner = made(kind, client, data).node.learner
    tensors = [thing for thing in reachable(learner) if isinstance(thing, torch.Tensor)]
    for split in ("train", "test"):
        labels = data.labels[split]
        holds = any(each.shape == labels.shape and torch.equal(each, labels) for each in tensors)
        assert holds == (kind in shares and split == "train"), split


@pytest.mark.parametrize("party", [0, 2])
def test_a_process_keeps_the_features_of_its_party_alone(party: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = tiny({"shared": KINDS["c_vfl"], "wait": KINDS["synchronous"]})
    monkeypatch.setattr(ScenarioData, "of", lambda self, training: marked(data_of(scenario)))
    data = PrivateData(scenario, party)
    kept = [data.of("shared"), data.of("wait")]
    assert marks(reachable(data)) == ({MARK + party} if party else set())
    for loaded, knows in zip(kept, (True, party == 0), strict=True):
        assert torch.equal(loaded.labels["train"], data_of(scenario).labels["train"]) is knows
        assert not party or loaded.features[party - 1]["train"] is kept[0].features[party - 1]["train"]


def marks(things: Iterable[object]) -> set[float]:
    """The marks of parties in tensors, and in what the storage of a view holds beside it."""
    found: set[float] = set()
    for thing in things:
        if isinstance(thing, torch.Tensor) and thing.is_floating_point() and thing.numel():
            whole = torch.empty(0, dtype=thing.dtype).set_(thing.untyped_storage())
            found |= {value for value in whole.unique().tolist() if value >= MARK}
    return found


def test_a_private_key_is_nobodys_to_compute() -> None:
    data = data_of(scenario_of("synchronous-blinded"))
    keys = {made("synchronous-blinded", 1, data).node.learner.blinder.private for _ in range(2)}
    assert len(keys) == 2
    assert private_key(0, 1) not in keys


def test_what_is_not_ones_own_spoils_what_it_touches_and_takes_no_memory() -> None:
    data = data_of(scenario_of("synchronous"))
    mine = private_data(data, party=2, labels=())
    assert torch.equal(mine.features[1]["train"], data.features[1]["train"])
    assert mine.features[1]["train"].is_contiguous()
    for place in (0, 2):
        assert bool(mine.features[place]["train"].isnan().all())
        assert mine.features[place]["train"].shape == data.features[place]["train"].shape
        assert mine.features[place]["train"].untyped_storage().nbytes() <= 8
    assert mine.rows == data.rows
    with pytest.raises((IndexError, RuntimeError)):
        torch.nn.functional.cross_entropy(torch.zeros(len(mine.labels["train"]), 10), mine.labels["train"])


def test_the_largest_message_between_clients_fits_and_a_much_larger_one_does_not() -> None:
    scenario = tiny({"coded": {"kind": "fedvs", "K": 1, "prime": "2^61-1"}, "wait": KINDS["synchronous"]})
    most = largest_between_clients(scenario, PrivateData.cut(ScenarioData(scenario), scenario, 1), 1)
    data = data_of(scenario, "coded")
    columns = max(part.stop - part.start for part in data.columns) + 1
    largest = DataShare(value=Handle((data.rows, columns), torch.int64))
    size = scenario.codec_of("coded").size_of(specs_of(largest), 0)
    assert size < most < size + 2 * 2**20
