"""The page on live runs: what a server can get for every message, and what can run live, follow from the code."""

from __future__ import annotations

from typing import get_args

from live_kinds import LIVE
from pages import ROOT, column, in_code
from protocols_by_kind import KINDS

from vflsim.kinds import TABLES
from vflsim.remote.control import Control
from vflsim.remote.frames import kinds_of

PAGE = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
SECTION = "### What a server can get from a client"
TRIED = {
    "prepare": ("server", "test_a_run_is_played_once"),
    "peer": ("server", "test_clients_are_introduced_with_the_facts_of_the_protocol_alone"),
    "voucher": ("server", "test_a_voucher_that_another_party_has_signed_is_refused"),
    "public_keys": ("server", "test_keys_that_their_owners_have_not_signed_are_refused"),
    "start": ("server", "test_a_run_starts_once_and_after_the_client_is_ready"),
    "evaluate": ("server", "test_no_evaluation_shows_embeddings_of_training_rows"),
    "query": ("server", "test_queries_about_rows_of_the_servers_choice_are_refused"),
    "sharers": ("message_checks", "test_a_server_names_as_many_sharers_as_the_scenario_has"),
    "up": ("server", "test_a_blinded_upload_is_the_same_integers_again_and_an_earlier_one_is_refused"),
    "stop": ("server", "test_a_client_evaluates_after_the_end_of_a_run_and_no_longer_after_the_last_evaluation"),
    **dict.fromkeys(
        ("away", "back", "due", "dropped", "welcome", "refused"),
        ("server", "test_what_no_server_says_in_such_a_run_ends_it"),
    ),
    **dict.fromkeys(
        ("gradient", "loss_differences", "shared_values", "admm_variables", "global_embedding", "pseudo_labels",
         "round_over"),
        ("message_checks", "test_a_client_takes_one_message_of_a_kind_a_round"),
    ),
    **dict.fromkeys(
        ("done", "bye", "beat"),
        ("server", "test_a_client_evaluates_after_the_end_of_a_run_and_no_longer_after_the_last_evaluation"),
    ),
}  # fmt: skip
"""Where an evil server tries each message that a server sends."""


def rows() -> list[set[str]]:
    return [in_code(cell) for cell in column(PAGE, SECTION)]


def test_the_table_of_what_a_server_can_get_has_every_message() -> None:
    control = {each.model_fields["kind"].default for each in get_args(Control)}
    assert set().union(*rows()) == control | kinds_of(()).keys()


def test_an_evil_server_tries_every_message_that_a_server_sends() -> None:
    *of_servers, others = rows()
    assert TRIED.keys() == set().union(*of_servers)
    assert TRIED.keys().isdisjoint(others)
    for module, name in set(TRIED.values()):
        file = (
            ROOT
            / "tests"
            / "remote"
            / ("test_message_checks.py" if module == "message_checks" else "test_evil_server.py")
        )
        assert f"def {name}(" in file.read_text(encoding="utf-8")


def test_the_page_lists_what_can_run_live_and_says_why_others_cannot() -> None:
    section = PAGE.partition("## What can run live")[2].partition("**Noise.**")[0]
    listed, reasons = section.split("protocols of your own for messages")
    known = {kind.model_fields["kind"].default for kind in TABLES["protocols"]} - {"module"}
    live = {KINDS[kind]["kind"] for kind in LIVE}
    assert in_code(listed) == live
    assert known <= live | in_code(reasons)
