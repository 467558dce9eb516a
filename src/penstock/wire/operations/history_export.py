"""The history export: canonical JSON, sealed while it is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock.core.attribution import PRINCIPAL
from penstock.core.audit.bundle import Bundle
from penstock.core.audit.trail import is_started_by_caller, start_command_id
from penstock.core.external_payloads import ENVELOPE_KEY, recorded, reference_of
from penstock.core.history.events import CODEC
from penstock.core.history.integrity import Seal, canonical
from penstock.core.model import Blob, RecordedEvent, Run
from penstock.core.timestamps import iso, iso_or_none
from penstock.wire.responses import priority
from penstock.wire.workflows.events import derived_event

Body = dict[str, Any]

SCHEMA: Final = "durable-workflow.v2.history-export"
SCHEMA_VERSION: Final = 1
_EVENTS: Final = "history_events"
_FRAMING: Final = "single_object"
_FINGERPRINT: Final = "crc64-avro:e2a33dff55802237"
_CODECS: Final[Body] = {
    CODEC: {
        "encoding": "base64-avro-single-object",
        "framing": _FRAMING,
        "magic_hex": "c301",
        "current_fingerprint": _FINGERPRINT,
        "writer_schemas": [{"name": "durable_workflow.protocol.Value", "fingerprint": _FINGERPRINT}],
    }
}


class BundleWriter:
    """Writes one export in parts: `head`, then `events` for each page, then `tail`.

    Members are in canonical order, except the seal, which comes last and does not cover itself.
    """

    def __init__(self, bundle: Bundle, key: str | None = None) -> None:
        self._run = bundle.run
        self._seal = Seal(key)
        self._comma = b""
        members = _members(bundle)
        self._before = [name for name in sorted(members) if name < _EVENTS]
        self._after = [name for name in sorted(members) if name > _EVENTS]
        self._members = members

    @property
    def checksum(self) -> str:
        """The checksum of the export, available after `tail`."""
        return self._seal.checksum

    def head(self) -> bytes:
        return self._sealed(b"{" + self._listed(self._before) + b"," + canonical(_EVENTS) + b":[")

    def events(self, page: Sequence[RecordedEvent]) -> bytes:
        parts = []
        for event in page:
            parts.append(self._comma + canonical(_event(event, self._run)))
            self._comma = b","
        return self._sealed(b"".join(parts))

    def tail(self) -> bytes:
        rest = self._sealed(b"]," + self._listed(self._after))
        self._seal.add(b"}")
        return rest + b',"integrity":' + canonical(self._seal.block()) + b"}"

    def _listed(self, names: Iterable[str]) -> bytes:
        return b",".join(canonical(name) + b":" + canonical(self._members[name]) for name in names)

    def _sealed(self, part: bytes) -> bytes:
        self._seal.add(part)
        return part


def _members(bundle: Bundle) -> Body:
    """Everything but the events and the seal."""
    run, outline = bundle.run, bundle.outline
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "exported_at": iso(bundle.exported_at_ms),
        "metadata": {"exported_at": iso(bundle.exported_at_ms), "format_version": SCHEMA_VERSION},
        "dedupe_key": f"{run.run_id}:{run.last_sequence}:{run.status.value}",
        "history_complete": not run.is_open,
        "workflow": _workflow(bundle),
        "payloads": {
            "codec": CODEC,
            "arguments": _payload(run.input),
            "output": _payload(run.output),
        },
        "summary": {
            "history_event_count": run.last_sequence,
            "history_events_by_type": dict(outline.types),
            "activity_count": len(outline.activities),
            "timer_count": len(outline.timers),
            "child_count": len(outline.children),
            "signal_count": len(outline.signals),
            "update_count": len(outline.updates),
            "failure_count": len(outline.failures),
        },
        "waits": _waits(run),
        "timeline": [derived_event(each) for each in outline.derived],
        "commands": list(outline.commands.values()),
        "signals": outline.signals,
        "updates": list(outline.updates.values()),
        "tasks": list(outline.tasks.values()),
        "activities": list(outline.activities.values()),
        "timers": list(outline.timers.values()),
        "failures": outline.failures,
        "links": {
            "projection_source": "history",
            "parents": _parents(run),
            "children": list(outline.children.values()),
        },
        "redaction": {"applied": False, "policy": None, "paths": []},
        "codec_schemas": _CODECS,
        "payload_manifest": {
            "version": 1,
            "entries": [
                _manifest("payloads.arguments.data", run.input),
                _manifest("payloads.output.data", run.output),
            ],
        },
    }


def _workflow(bundle: Bundle) -> Body:
    run = bundle.run
    return {
        "namespace": run.namespace,
        "instance_id": run.workflow_id,
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "run_number": run.run_number,
        "run_count": bundle.run_count,
        "is_current_run": run.run_id == bundle.current_run_id,
        "current_run_id": bundle.current_run_id,
        "workflow_type": run.workflow_type,
        "workflow_class": run.workflow_type,
        "business_key": run.business_key,
        "memo": json.loads(run.memo),
        "search_attributes": json.loads(run.search_attributes),
        "status": run.status.value,
        "status_bucket": run.status.bucket,
        "closed_reason": run.closed_reason,
        "compatibility": run.compatibility,
        "connection": None,
        "queue": run.task_queue,
        **priority(run.level),
        "fairness_key": run.key or None,
        "execution_timeout_seconds": run.execution_timeout_s,
        "run_timeout_seconds": run.run_timeout_s,
        "last_history_sequence": run.last_sequence,
        "started_at": iso(run.started_at_ms),
        "closed_at": iso_or_none(run.closed_at_ms),
        "archived_at": iso_or_none(run.archived_at_ms),
        "last_progress_at": iso(run.last_progress_at_ms),
    }


def _waits(run: Run) -> list[Body]:
    """What an open run waits for, by kind."""
    counts = {
        "activity": run.open_activities,
        "timer": run.open_timers,
        "child_workflow": run.open_children,
        "update": run.open_updates,
    }
    return [{"kind": kind, "count": count} for kind, count in counts.items() if count]


def _parents(run: Run) -> list[Body]:
    if not run.lineage.is_child:
        return []
    return [
        {
            "parent_workflow_instance_id": run.lineage.parent_workflow_id,
            "parent_workflow_run_id": run.lineage.parent_run_id,
            "parent_sequence": run.lineage.parent_step,
        }
    ]


def _payload(blob: Blob | None) -> Body:
    """A payload of the run; one in external storage is named by its reference, and is not part of the export."""
    reference = None if blob is None else reference_of(blob)
    if reference is not None:
        return {"available": False, "codec": CODEC, "data": None, ENVELOPE_KEY: reference.fields}
    return {"available": blob is not None, "codec": CODEC, "data": blob}


def _manifest(path: str, blob: Blob | None) -> Body:
    reference = None if blob is None else reference_of(blob)
    return {
        "path": path,
        "codec": CODEC,
        "available": blob is not None and reference is None,
        "redacted": False,
        "avro_framing": _FRAMING,
        "size_bytes": 0 if blob is None else len(blob) if reference is None else reference.size_bytes,
    }


def _event(event: RecordedEvent, run: Run) -> Body:
    """An event; the first one includes the input of the run, from which a replay starts."""
    payload = json.loads(event.payload)
    principal = payload.pop(PRINCIPAL, None)
    if event.sequence == 1:
        payload = {"payload_codec": CODEC} | payload | recorded({"arguments": run.input})
        if is_started_by_caller(payload):
            payload["workflow_command_id"] = start_command_id(run.run_id)
    at = iso(event.recorded_at_ms)
    return {
        "id": event.id,
        "sequence": event.sequence,
        "type": event.type,
        "event_type": event.type,
        "workflow_task_id": event.task_id,
        "workflow_command_id": payload.get("workflow_command_id"),
        "recorded_at": at,
        "timestamp": at,
        "principal": principal,
        "payload": payload,
    }
