"""The commands of the contract's command line, and what each is here.

`ALIASES` are commands of ours under the contract's spelling, `REQUESTS` (in `request`) are single requests, `REFUSED`
are not here and say what to use instead. Every command of the contract is in exactly one of them; the reference page
and the tests read these tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cli.contract.alias import CommandAlias
from penstock.cli.contract.translations import BATCH, INPUT, INTERVAL, SCHEDULE_ID, UNATTENDED

PLURALS = {
    "activities": "activity",
    "schedules": "schedule",
    "search-attributes": "search-attribute",
    "workflows": "workflow",
}
"""Nouns that may also be written in the plural."""

_RUN = {"-r": "run_id"}
_INPUT = {"-i": "values"}
_OVERLAP = {"--overlap-policy": "overlap_policy"}
_SCHEDULE = {
    "-c": "cron_expressions", "-t": "workflow_type", "--workflow-type": "workflow_type", **_OVERLAP, **_INPUT,
}  # fmt: skip
_SAME = (
    "activity:describe", "server:health", "server:info", "completion", "env:delete", "env:list", "env:set",
    "env:show", "env:use", "namespace:describe", "namespace:list", "search-attribute:list",
    "task-queue:build-ids", "task-queue:describe", "task-queue:drain", "task-queue:list", "task-queue:promote",
    "task-queue:resume", "schedule:describe", "schedule:pause", "schedule:resume", "worker:deregister",
    "worker:describe", "worker:list", "workflow:archive", "workflow:repair", "workflow:terminate",
)  # fmt: skip

ALIASES: Mapping[str, CommandAlias] = {name: CommandAlias(ours=name.replace(":", " ")) for name in _SAME} | {
    "activity:list": CommandAlias(ours="activity list", flags={"--next-page-token": "page_token"}),
    "bridge:webhook": CommandAlias(ours="bridge webhook", flags=_INPUT, also=(INPUT,)),
    "debug": CommandAlias(ours="workflow debug", resource="workflow"),
    "doctor": CommandAlias(
        ours="server info", differs="prints what `dw server:info` does; `dw env:show` has the local settings"
    ),
    "namespace:create": CommandAlias(ours="namespace create", flags={"--retention": "retention_days"}),
    "namespace:update": CommandAlias(ours="namespace update", flags={"--retention": "retention_days"}),
    "namespace:delete": CommandAlias(
        ours="namespace delete", also=(UNATTENDED,), differs="asks on a terminal, unless `--yes` is given"
    ),
    "schedule:create": CommandAlias(
        ours="schedule create",
        flags=_SCHEDULE,
        also=(INPUT, INTERVAL, SCHEDULE_ID),
        differs="also previews the next moments; a JSON object as input is one argument",
    ),
    "schedule:list": CommandAlias(
        ours="schedule list", flags={"-t": "workflow_type", "-l": "limit", "--next-page-token": "page_token"}
    ),
    "schedule:update": CommandAlias(
        ours="schedule update",
        flags=_SCHEDULE,
        also=(INPUT, INTERVAL),
        differs="a new `--cron` or `--interval` keeps the time zone",
    ),
    "schedule:trigger": CommandAlias(ours="schedule trigger", flags=_OVERLAP),
    "schedule:backfill": CommandAlias(
        ours="schedule backfill", flags={"--start-time": "start_time", "--end-time": "end_time", **_OVERLAP}
    ),
    "schedule:delete": CommandAlias(
        ours="schedule delete", also=(UNATTENDED,), differs="asks on a terminal, unless `--yes` is given"
    ),
    "schedule:history": CommandAlias(ours="schedule history", flags={"--after-sequence": "after"}),
    "search-attribute:create": CommandAlias(ours="search-attribute create", words=("kind",)),
    "search-attribute:delete": CommandAlias(
        ours="search-attribute delete",
        also=(UNATTENDED,),
        differs="asks on a terminal, unless `--yes` is given",
    ),
    "server:start-dev": CommandAlias(
        ours="dev",
        refused={
            "--db DRIVER": "the development server uses SQLite; for PostgreSQL use `penstock server start`."
        },
        differs="our development server, on SQLite: no `--db`",
    ),
    "system:operator-metrics": CommandAlias(ours="system metrics"),
    "system:repair-status": CommandAlias(ours="system repair", fixed={"run_now": False}),
    "system:repair-pass": CommandAlias(
        ours="system repair", fixed={"run_now": True}, flags={"--instance-id": "instance_id"}
    ),
    "system:retention-status": CommandAlias(ours="system retention", fixed={"run_now": False}),
    "system:retention-pass": CommandAlias(ours="system retention", fixed={"run_now": True}),
    "system:activity-timeout-status": CommandAlias(ours="system activity-timeouts", fixed={"run_now": False}),
    "system:activity-timeout-pass": CommandAlias(ours="system activity-timeouts", fixed={"run_now": True}),
    "watch": CommandAlias(
        ours="workflow history",
        resource="workflow",
        fixed={"follow_it": True},
        unused=("--interval/-i N", "--max-polls N"),
        differs="prints events as they come, not fields that changed; code 0 when the run is closed",
    ),
    "workflow:cancel": CommandAlias(
        ours="workflow cancel",
        instead={
            "--all-matching": CommandAlias(
                ours="workflow batch cancel", flags={"--all-matching": "query", "-y": "yes"}, also=(BATCH,)
            )
        },
        differs="with `--all-matching` it is `penstock workflow batch cancel`: all that match, no `--limit`",
    ),
    "workflow:describe": CommandAlias(
        ours="workflow describe",
        flags=_RUN,
        instead={
            "--follow/-f": CommandAlias(ours="workflow result", flags=_RUN, unused=("--follow/-f",)),
        },
        differs="with `--follow` it is `penstock workflow result`, which ends with code 1 if the run failed",
    ),
    "workflow:show-run": CommandAlias(ours="workflow describe", words=("run_id",)),
    "workflow:redrive": CommandAlias(ours="workflow redrive", words=("run_id",)),
    "workflow:list-runs": CommandAlias(ours="workflow runs"),
    "workflow:history": CommandAlias(
        ours="workflow history",
        words=("run_id",),
        unused=("--page-size N",),
        differs="RUN may be left out; pages are read as needed, whatever `--page-size` says",
    ),
    "workflow:history-export": CommandAlias(
        ours="workflow export",
        words=("run_id",),
        flags={"--output-file": "output", "-o": "output"},
        differs="replaces a file only with `--force`; the checksum is verified",
    ),
    "workflow:list": CommandAlias(ours="workflow list", flags={"-t": "workflow_type", "-l": "limit"}),
    "workflow:query": CommandAlias(ours="workflow query", flags=_INPUT, also=(INPUT,)),
    "workflow:signal": CommandAlias(ours="workflow signal", flags=_INPUT, also=(INPUT,)),
    "workflow:update": CommandAlias(
        ours="workflow update", flags=_INPUT, also=(INPUT,), defaults={"wait_for": "accepted"}
    ),
    "workflow:start": CommandAlias(
        ours="workflow start",
        flags={"-t": "workflow_type", "-w": "workflow_id", "--search-attr": "attributes", **_INPUT},
        also=(INPUT,),
        differs="with `--wait`, prints the result; a JSON object as input is one argument",
    ),
}

REFUSED: Mapping[str, str] = {
    "runtime:check": "It checks PHP; `dw server:info` shows what the server supports.",
    "schema:list": "The server describes its answers itself, at `/openapi.json`.",
    "schema:manifest": "The server describes its answers itself, at `/openapi.json`.",
    "schema:show": "The server describes its answers itself, at `/openapi.json`.",
    "upgrade": "Upgrade the package: `pip install --upgrade penstock`.",
    "workflow:migrate-v1": "It imports runs of the PHP package, which no server of ours has.",
}
"""Commands that are not here, with what to use instead."""
