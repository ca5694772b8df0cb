"""SECURITY.md promises nothing without a test: each sentence, and the tests that hold it."""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

PROMISES: dict[str, tuple[str, ...]] = {
    "A sensitive value in the store's file is AES-256-GCM": (
        "test_the_store_file_holds_no_secret_in_the_clear",
        "test_the_store_holds_no_key_in_the_clear",
        "test_another_master_key_opens_nothing",
        "test_each_tenant_and_purpose_has_its_own_key",
    ),
    "Of an API key only a hash is stored": (
        "test_the_store_file_holds_no_secret_in_the_clear",
        "test_neither_body_nor_answer_nor_key_lies_open_in_the_file",
    ),
    "An expired cvc, intent or kept answer cannot be read": (
        "test_what_is_due_is_known_at_its_instant",
        "test_an_answer_is_kept_for_a_day_to_the_nanosecond",
        "test_d_idempotency_a_deletion_deletes_kept_answers",
        "test_a_wall_clock_that_was_set_back_brings_no_cvc_back",
    ),
    "What has expired is overwritten in the file": (
        "test_what_has_expired_is_erased_in_time_under_load",
        "test_an_expired_cvc_is_in_no_file",
        "test_a_reader_in_the_way_holds_up_the_erasure_alone",
    ),
    "No action gives anybody access that its caller lacks": (
        "test_every_operation_has_its_row",
        "test_d_rights_each_operation_for_each_key_at_each_place",
        "test_d_rights_nobody_moves_a_proxy_that_reads_what_they_may_not",
        "test_d_grant_scope_removing_is_scoped_as_giving_is",
    ),
    "What runs later runs with the rights of whoever configured it last": (
        "test_d_rights_a_proxy_runs_with_the_rights_of_whoever_configured_it_last",
        "test_d_rights_a_reactor_runs_with_what_its_configurer_and_its_caller_hold",
    ),
    "A proxy calls what the operator lists and nothing else": (
        "test_d_proxy_a_destination_is_checked_as_a_request_path_is",
        "test_what_is_not_on_the_list_is_not_even_resolved",
        "test_no_name_leads_inside",
        "test_a_redirect_is_an_answer_and_is_not_followed",
    ),
    "No log, error, metric or report holds token data": (
        "test_no_exception_and_no_log_record_holds_a_secret",
        "test_rec_secret_no_answer_but_detokenize_holds_a_secret",
        "test_d_problem_no_error_quotes_a_members_name",
    ),
    "A request that is answered is in the file, whole": (
        "test_no_kill_loses_what_was_answered",
        "test_a_loss_of_power_loses_no_commit_and_tears_none",
    ),
    "One process owns the file; a second one is refused.": (
        "test_a_file_has_one_owner",
        "test_a_file_has_one_server_whatever_it_is_called",
    ),
    "`/healthz` answers 503 while the store cannot be written": (
        "test_reads_go_on_where_the_disk_is_full",
        "test_a_disk_that_is_full_loses_nothing",
    ),
    "A clock that is set moves no deadline.": (
        "test_created_at_follows_the_wall_clock_and_deadlines_do_not",
        "test_a_wall_clock_that_was_set_keeps_no_answer_longer_or_shorter",
    ),
    "Requests hold no more memory than the budget": (
        "test_one_caller_may_hold_a_share_and_all_together_the_whole",
        "test_an_answer_without_room_is_503",
        "test_what_a_request_reads_is_reserved_before_it_is_read",
        "test_unfinished_heads_hold_no_more_than_their_budget",
        "test_many_large_bodies_at_once_are_503_and_memory_is_bounded",
    ),
    "What costs much runs in one worker": (
        "test_what_costs_much_runs_in_the_worker",
        "test_callers_share_the_worker_in_turn",
        "test_code_that_hangs_delays_neither_other_code_nor_the_end",
    ),
}
"""The first words of each sentence, and its tests."""


def _sentences() -> list[str]:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    section = text.partition("## What the server promises\n")[2].partition("\n## ")[0]
    return [" ".join(part.split()) for part in section.split("\n- ")[1:]]


def test_every_sentence_has_its_tests() -> None:
    starts = list(PROMISES)
    sentences = _sentences()
    assert len(sentences) == len(starts)
    for sentence, start in zip(sentences, starts, strict=True):
        assert sentence.startswith(start)


def test_every_test_is_there() -> None:
    names = {
        node.name
        for file in HERE.rglob("test_*.py")
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert {test for tests in PROMISES.values() for test in tests} <= names
