"""Every command of the contract's command line is taken, with its options and arguments, or refused by name."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path

import click
import pytest

from penstock.cli.contract.alias import ContractCommand
from penstock.cli.contract.page import contract_markdown
from penstock.cli.contract.program import NotHere, dw
from penstock.cli.contract.request import REQUESTS
from penstock.cli.contract.session import ContractSession
from penstock.cli.contract.table import ALIASES, REFUSED
from penstock.cli.program import COMMANDS, program
from penstock.server.operations.table import OPERATIONS
from tests.cli.recorded_server import Run

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "dw.md"

CONTRACT = {
    "": "completion debug doctor upgrade watch",
    "activity": "complete describe fail list",
    "bridge": "webhook",
    "env": "delete list set show use",
    "namespace": "create delete describe list set-storage-driver update",
    "query-task": "complete fail poll",
    "runtime": "check",
    "schema": "list manifest show",
    "schedule": "backfill create delete describe history list pause resume trigger update",
    "search-attribute": "create delete list",
    "server": "health info start-dev",
    "storage": "test",
    "system": "activity-timeout-pass activity-timeout-status operator-metrics repair-pass repair-status"
    " retention-pass retention-status",
    "task-queue": "build-ids describe drain list promote resume",
    "worker": "deregister describe list register",
    "workflow": "archive cancel describe history history-export list list-runs migrate-v1 query repair show-run signal"
    " start redrive terminate update",
    "workflow-task": "complete fail history poll",
}
"""The contract's commands."""

NAMES = {f"{noun}:{verb}".lstrip(":") for noun, verbs in CONTRACT.items() for verb in verbs.split()}

LINES = """
activity:complete TASK ATTEMPT --input='{"ok":true}' --lease-owner=me --json
activity:complete TASK ATTEMPT --input-file=result.json --input-encoding=raw
activity:describe reminder-1 --run-id=01H --output=json
activity:fail TASK ATTEMPT -m boom -t RuntimeError --non-retryable
activity:list --status=running --limit=25 --next-page-token=t --output=jsonl
bridge:webhook stripe --action=start_workflow --idempotency-key=evt --target='{"workflow_type":"t"}' -i '{"a":1}' --json
bridge:webhook stripe --action=signal_workflow --idempotency-key=e --target='{}' --input-file=- --correlation='{"p":1}'
completion bash
debug workflow order-1 --run-id=01H --output=json
doctor --env=prod --output=json
env:delete prod --json
env:list --show-token --output=jsonl
env:set prod --server=https://a.example --namespace=orders --token-env=T --profile-output=json --make-default
env:set prod --token= --tls-verify=false
env:show prod --show-token --json
env:use prod
namespace:create staging --description=Staging --retention=7 --json
namespace:delete staging --json
namespace:describe staging --json
namespace:list --output=json
namespace:set-storage-driver billing s3 --bucket=b --prefix=p/ --region=r --endpoint=e --auth-profile=a --disable
storage:test --driver=s3 --small-bytes=128 --large-bytes=3145728
namespace:update staging --retention=14
query-task:complete QUERY 1 --lease-owner=w --result='{"ready":true}'
query-task:fail QUERY 1 --lease-owner=w --message=unknown --reason=decode_failure --type=E --stack-trace=t
query-task:poll w --task-queue=orders --json
schedule:backfill daily --start-time=2026-04-01T00:00:00Z --end-time=2026-04-07T00:00:00Z --overlap-policy=skip --json
schedule:create --schedule-id=daily --workflow-type=reports.Daily --cron="0 6 * * *" --timezone=UTC --json
schedule:create --schedule-id=poller -t sync.Poll --interval=PT15M --task-queue=q -i '{"a":1}' --overlap-policy=skip
schedule:create -t migrate.Once -c "0 0 1 * *" --max-runs=1 --jitter=60 --paused --note=once --input-file=payload.json
schedule:create -t a -c "0 9 * * *" --execution-timeout=3600 --run-timeout=600 --input-encoding=json
schedule:delete daily --json
schedule:describe daily --output=json
schedule:history daily --limit 200 --after-sequence 42 --all --output=jsonl
schedule:list -t reports.Daily --status=paused --query="Region = 'eu'" -l 25 --next-page-token=t --output=jsonl
schedule:pause daily --note="Holiday freeze" --json
schedule:resume daily --note=back
schedule:trigger daily --overlap-policy=allow_all --json
schedule:update daily -c "0 5 * * *" -t reports.Daily --task-queue=q --execution-timeout=60 --run-timeout=30 --json
schedule:update daily --interval=PT1H --overlap-policy=skip --jitter=60 --max-runs=100 --note=n -i '[1]'
schedules list --namespace=orders --output=jsonl
search-attribute:create customer keyword --json
search-attribute:create customer --type keyword
search-attribute:delete customer --json
search-attribute:list --output=jsonl
server:health -s http://a --token=t --tls-verify=true
server:info --json
server:start-dev --port=9090 --host=127.0.0.1
system:activity-timeout-pass --execution-id=A --execution-id=B --limit=5 --json
system:activity-timeout-status --limit=5
system:operator-metrics --json
system:repair-pass --instance-id=order-1 --run-id=A --run-id=B
system:repair-status --json
system:retention-pass --run-id=A --limit=5
system:retention-status
task-queue:build-ids orders --json
task-queue:describe payments --json
task-queue:drain orders --build-id b1
task-queue:list --output=jsonl
task-queue:promote orders --build-id b1
task-queue:resume orders --build-id b1
watch workflow order-1 --run-id=01H --interval=5 --max-polls=60
worker:deregister w --json
worker:describe w
worker:list --task-queue=orders --status=active --output=jsonl
worker:register w --task-queue=orders --runtime=php --workflow-type=a --activity-type=b --max-workflow-tasks=1
worker:register --build-id=b --sdk-version=1 --max-activity-tasks=2 --json
workflow-task:complete TASK 1 --lease-owner=w --complete-result='{"ok":true}'
workflow-task:complete TASK 1 --command='{"type":"complete_workflow"}' --json
workflow-task:fail TASK 1 --lease-owner=w -m mismatch -t NonDeterminism --stack-trace=t
workflow-task:history TASK PAGE --lease-owner=w --attempt=1 --json
workflow-task:poll w --task-queue=q --build-id=b --poll-request-id=p --history-page-size=9 --accept-history-encoding=gz
workflow:archive order-1 --reason=old --run-id=01H --json
workflow:cancel order-1 --reason=asked --run-id=01H --json
workflow:cancel --all-matching="customer = 'a'" -t orders --yes --reason=asked
workflow:describe order-1 -r 01H --json
workflow:describe order-1 --run-id=01H -f
workflow:history order-1 01H --follow --page-size=100 --output=jsonl
workflow:history-export order-1 01H -o bundle.json
workflow:history-export order-1 01H --output-file=bundle.json
workflow:list -t orders.process --status=running --query='a = 1' -l 100 --output=jsonl
workflow:list-runs order-1 --json
workflow:query order-1 state -i '[1]' --run-id=01H --input-encoding=json
workflow:redrive order-1 01H --request-id=incident-42 --json
workflow:repair order-1 --run-id=01H --json
workflow:show-run order-1 01H --output=json
workflow:signal order-1 paid --input-file=- --input-encoding=base64
workflow:start -t orders.Checkout -w chk-42 -i '{"order_id":42}' --search-attr env=prod --search-attr tier=gold
workflow:start --type=a --workflow-id=b --task-queue=q --business-key=k --duplicate-policy=use-existing --memo='{}'
workflow:start --type=a --execution-timeout=3600 --run-timeout=600 --input-file=payload.json --wait
workflow:terminate order-1 --reason=stuck --run-id=01H --json
workflow:update order-1 approve -i '{"by":10}' --wait=completed --run-id=01H
workflows list --status running
activities:list --namespace=orders --output=jsonl
search-attributes create OrderStatus keyword
"""
"""Command lines of the contract's documentation, and one for every further option."""


def found(words: list[str]) -> tuple[str, click.Command, list[str]]:
    name, command, rest = dw.resolve_command(click.Context(dw), words)
    assert name is not None
    assert command is not None
    return name, command, rest


def test_every_command_of_the_contract_is_in_one_table() -> None:
    counted = Counter([*ALIASES, *REQUESTS, *REFUSED])
    assert set(counted) == NAMES
    assert len(NAMES) == 82
    assert set(counted.values()) == {1}


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_the_command_line_of_the_contract_is_understood(line: str) -> None:
    name, command, rest = found(shlex.split(line))
    assert isinstance(command, ContractCommand)
    ctx = command.make_context(name, rest, parent=click.Context(dw, obj=ContractSession()))
    assert not ctx.args


def test_every_command_has_a_command_line_above() -> None:
    tried = {line.split()[0] for line in LINES.strip().splitlines()}
    assert NAMES - set(REFUSED) <= tried


@pytest.mark.parametrize("name", [*ALIASES, *REQUESTS])
def test_the_help_of_every_command_is_printed_without_a_warning(contract: Run, name: str) -> None:
    result = contract(name, "--help")
    assert result.exit_code == 0, result.output
    assert "--output" in result.stdout or name == "completion"


@pytest.mark.parametrize("name", REFUSED)
def test_a_command_that_is_not_here_says_what_to_use(contract: Run, name: str) -> None:
    with pytest.raises(NotHere):
        found([name])
    result = contract(name)
    assert result.exit_code == 2
    assert f"command_not_here: dw {name} is not there." in result.stderr
    assert REFUSED[name] in result.stderr


@pytest.mark.parametrize("row", REQUESTS.values(), ids=REQUESTS)
def test_every_single_request_is_an_operation_of_the_server(row: object) -> None:
    method, path = getattr(row, "method", ""), getattr(row, "path", "")
    assert (method, f"/api/{path}") in {(each.method, each.path) for each in OPERATIONS}


@pytest.mark.parametrize("noun", COMMANDS)
def test_every_noun_of_ours_is_one_of_dw_in_both_forms(noun: str) -> None:
    """A new noun needs no row: `schedule` becomes `dw schedule:create` by being in `COMMANDS`."""
    group = program.get_command(click.Context(program), noun)
    verbs = group.list_commands(click.Context(program)) if isinstance(group, click.Group) else []
    for verb in verbs:
        assert found([f"{noun}:{verb}"])[0] == found([noun, verb])[0] == f"{noun}:{verb}"


def test_a_plural_noun_is_the_same_noun() -> None:
    assert found(["workflows:list"])[0] == found(["workflows", "list"])[0] == "workflow:list"
    assert found(["activities:list"])[0] == found(["activities", "list"])[0] == "activity:list"


@pytest.mark.parametrize(("typed", "meant"), [("task-que:list", "task-queue:list"), ("env:lst", "list")])
def test_an_unknown_command_suggests_the_nearest_under_dw(contract: Run, typed: str, meant: str) -> None:
    result = contract(typed)
    assert result.exit_code == 2
    assert f"Did you mean '{meant}'" in result.stderr


@pytest.mark.parametrize(
    "line",
    [
        "workflow:cancel --all-matching x --yes --limit 5",
        "workflow:cancel --all-matching x --yes --status failed",
        "server:start-dev --db pgsql",
    ],
)
def test_an_option_that_is_not_here_says_what_to_use(contract: Run, line: str) -> None:
    result = contract(*shlex.split(line))
    assert result.exit_code == 2
    assert re.search(r"--[a-z-]+ is not there: .+", result.stderr)


def test_the_page_agrees_with_the_tables() -> None:
    """After a change: `penstock docs dw > docs/reference/dw.md`."""
    assert PAGE.read_text() == contract_markdown()
