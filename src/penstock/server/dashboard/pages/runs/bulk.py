"""Cancel, terminate or signal many runs, selected ones or all that match; the effect is shown first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from penstock.errors import InvalidInput, NotFound, Reason
from penstock.server.dashboard.page_rows import Outcome, Values
from penstock.server.dashboard.page_templates import link
from penstock.server.dashboard.pages.change_dialog import as_cli
from penstock.server.dashboard.pages.runs.completion import quoted
from penstock.server.dashboard.pages.runs.run_commands import arguments
from penstock.server.dashboard.view import Act, View
from penstock.wire.request_parser import field_error

ACTS: Final = {
    "cancel": "Asks each to stop; its code may clean up first, and the run ends as cancelled.",
    "terminate": "Ends each at once: no code of the workflow runs any more, nothing is cleaned up.",
    "signal": "Sends each a signal; its code decides what follows.",
}
SAMPLE: Final = 200
SELECTED_MAX: Final = 100
CALLS_MAX: Final = 20
"""Most portions of 500 runs that one request acts on."""


async def dialog(view: View) -> Values:
    """What the act would reach: how many open runs, and the first of them."""
    act = _act(view.path["act"])
    query = view.query.get("selection") or _selection(view.query.get("ids", ""), view.query.get("q", ""))
    body = await view.read("list_workflows", {"query": query, "page_size": str(SAMPLE)})
    runs = body["workflows"]
    return {
        "act": act,
        "explained": ACTS[act],
        "selection": query,
        "runs": runs[:8],
        "reached": len(runs),
        "is_more": body["next_page_token"] is not None,
        "action": link("runs", "bulk", act, namespace=view.namespace),
        "request_id": view.ctx.entropy.new_id(),
        "command": _command(act, query, view.query),
    }


async def carry_out(act: Act) -> Outcome:
    """Act on the runs in portions, each of which commits by itself."""
    operation = _act(act.path["act"])
    query = act.text("selection")
    if query is None:
        raise field_error("selection", "is missing")
    body = {
        "operation": operation,
        "query": query,
        "reason": act.text("reason"),
        "signal_name": act.text("signal_name") if operation == "signal" else None,
        "input": arguments(act.text("input")) if operation == "signal" else None,
        "request_id": act.text("request_id"),
    }
    acted = failed = 0
    token = None
    for _ in range(CALLS_MAX):
        answer = await act.change("carry_out_batch_operation", body | {"token": token})
        acted += answer["acted"] + answer.get("cancel_requested", 0)
        failed += answer["failed"]
        token = answer["next_token"]
        if token is None:
            break
    runs = "1 run" if acted == 1 else f"{acted:,} runs"
    rest = " More match: do it again for them." if token is not None else ""
    refused = f" {failed:,} refused it." if failed else ""
    done = {"cancel": "were asked to stop", "terminate": "were terminated", "signal": "got the signal"}[
        operation
    ]
    return Outcome(f"{runs} {done}.{refused}{rest}".replace("1 run were", "1 run was"))


def _act(name: str) -> str:
    if name not in ACTS:
        raise NotFound(Reason.NOT_FOUND, f"There is no bulk action {name!r}.")
    return name


def _selection(ids: str, query: str) -> str:
    """The query that finds what was selected: open runs of these ids, or all open runs that match."""
    if ids:
        chosen = json.loads(ids) if ids.startswith("[") else None
        if not isinstance(chosen, list) or not 0 < len(chosen) <= SELECTED_MAX:
            raise InvalidInput(Reason.INVALID_QUERY, f"Select between 1 and {SELECTED_MAX} runs.")
        return f"Status = 'open' AND RunId IN ({', '.join(quoted(str(each)) for each in chosen)})"
    return f"Status = 'open' AND ({query})" if query.strip() else "Status = 'open'"


def _command(act: str, selection: str, query: Mapping[str, str]) -> str:
    options = {"--query": selection}
    words = ["workflow", "batch", act]
    if act == "signal":
        words.append(query.get("signal_name") or "NAME")
        options["--input"] = query.get("input", "")
    else:
        options["--reason"] = query.get("reason", "")
    return as_cli(words, options, query)
