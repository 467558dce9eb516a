"""The block that shows where each value of a dispatch comes from."""

from __future__ import annotations

import logging

import pytest

from penstock.dispatch import load_dispatch
from penstock.dispatch.routing import trace_log
from tests.dispatch.tables import PIPELINES, R1, made

_BLOCK = """\
INFO  dispatch  act_llm_gen_text  routing_key=claude-4.6-opus
        task_queue=anthropic-queue            (activity_queues.by_handle)
        start_to_close_timeout=0:15:00        (handle_options)
        heartbeat_timeout=0:01:00             (queue_options)
        retry.maximum_attempts=5              (queue_options)
        retry.non_retryable=['AnthropicAuthError','OAIBillingError']  (baseline + queue_extra)"""
_BILLING = "worker_config.retry_policy_config.non_retryable_error_types=['OAIBillingError']"


def test_the_block_is_the_published_one_byte_for_byte(caplog: pytest.LogCaptureFixture) -> None:
    config = load_dispatch(PIPELINES, environ={}, overrides=[_BILLING])
    with caplog.at_level(logging.INFO, "penstock.dispatch"):
        options = config.resolve("act_llm_gen_text", "claude-4.6-opus")
    (record,) = caplog.records
    assert f"{record.levelname}  {record.getMessage()}" == _BLOCK
    assert f"INFO  {trace_log.block('act_llm_gen_text', 'claude-4.6-opus', options)}" == _BLOCK
    said = record.__dict__["dispatch"]
    assert said["fingerprint"] == config.fingerprint
    assert said["values"]["retry.initial_interval"] == "0:00:01"
    assert said["sources"]["retry.initial_interval"] == "queue_options"
    assert said["values"]["retry.non_retryable"] == ["OAIBillingError", "AnthropicAuthError"]


def test_a_replay_is_not_traced_and_a_file_without_the_switch_neither(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = load_dispatch(PIPELINES, environ={})
    with caplog.at_level(logging.INFO, "penstock.dispatch"):
        config.resolve("act_llm_gen_text", is_traced=False)
        made(R1).resolve("act_llm")
    assert caplog.records == []


def test_what_rides_the_workflows_own_queue_says_so() -> None:
    options = made(retry_policy_config={"maximum_attempts": "unlimited"}).resolve("a")
    assert trace_log.block("a", None, options).splitlines() == [
        "dispatch  a  routing_key=None",
        "        task_queue=None                       (workflow's own queue)",
        "        start_to_close_timeout=0:10:00        (baseline)",
        "        retry.maximum_attempts=unlimited      (baseline)",
        "        retry.non_retryable=[]                (none)",
    ]


def test_a_key_with_newlines_stays_on_its_line() -> None:
    options = made(R1).resolve("act_llm", "x\nINFO  forged")
    first, second, *_ = trace_log.block("act_llm", "x\nINFO  forged", options).splitlines()
    assert first == r"dispatch  act_llm  routing_key=x\nINFO  forged"
    assert second.startswith("        task_queue=")


def test_the_seeds_call_traces_when_it_is_told_to(caplog: pytest.LogCaptureFixture) -> None:
    config = made(R1)
    with caplog.at_level(logging.INFO, "penstock.dispatch"):
        config.worker_config.resolve_dispatch("act_llm", "opus", config.queue_options, True)
    assert caplog.records[0].getMessage().startswith("dispatch  act_llm  routing_key=opus\n")
