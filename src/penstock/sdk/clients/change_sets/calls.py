"""`client.change_sets`: propose, plan, approve, apply and roll back changes of several limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from penstock.sdk.clients.base_client import BaseClient
from penstock.sdk.clients.change_sets.descriptions import ChangeSetDescription, ChangeSetPlan, ChangeSetStatus
from penstock.sdk.clients.descriptions import Json
from penstock.sdk.connection.transport import route

Limits = Mapping[str, Any]
"""Settings of one target: `max_active_leases`, `max_dispatches_per_minute`, `weights`, `keys`, …; None unsets."""
PAGE = 100


class ChangeSetCalls(BaseClient):
    """The part of `Client` for change sets."""

    @property
    def change_sets(self) -> ChangeSetClient:
        """The change sets of the namespace."""
        return ChangeSetClient(self)


class ChangeSetClient:
    """The change sets of a namespace."""

    def __init__(self, client: BaseClient) -> None:
        self._client = client

    async def new(
        self,
        reason: str,
        *,
        queues: Mapping[str, Limits] | None = None,
        groups: Mapping[str, Limits] | None = None,
        namespace: Limits | None = None,
        cluster: Limits | None = None,
        apply_at: datetime | None = None,
        expires_in: timedelta | None = None,
    ) -> ChangeSetDescription:
        """Propose a change of several limits. Nothing is changed yet.

        Args:
            reason: why; every log of a setting shows it.
            queues: limits by task queue. With `task_queue_type: "workflow"` they are those of its workflow tasks.
            groups: limits by budget group.
            namespace: limits of the namespace.
            cluster: limits of all namespaces; needs the admin role.
            apply_at: when the server applies it, with a time zone; None: when somebody does.
            expires_in: after this time every setting gets its old value back, unless somebody changed it meanwhile.

        Raises:
            InvalidRequest: a setting is wrong; `details["errors"]` names it.
        """
        body = _proposal(reason, queues, groups, namespace, cluster, apply_at, expires_in)
        return ChangeSetDescription.read(await self._send("POST", body=body))

    async def edit(
        self,
        id: str,  # noqa: A002 - the word of the API
        reason: str,
        *,
        queues: Mapping[str, Limits] | None = None,
        groups: Mapping[str, Limits] | None = None,
        namespace: Limits | None = None,
        cluster: Limits | None = None,
        apply_at: datetime | None = None,
        expires_in: timedelta | None = None,
    ) -> ChangeSetDescription:
        """Replace all that a change set does, by the present values. Its approvals are dropped.

        Args:
            id: the change set.
            reason: as in `new`.
            queues: as in `new`.
            groups: as in `new`.
            namespace: as in `new`.
            cluster: as in `new`.
            apply_at: as in `new`.
            expires_in: as in `new`.
        """
        body = _proposal(reason, queues, groups, namespace, cluster, apply_at, expires_in)
        return ChangeSetDescription.read(await self._send("PUT", id, body=body))

    async def get(self, id: str) -> ChangeSetDescription:  # noqa: A002
        """Return a change set with the present values of its settings.

        Args:
            id: the change set.

        Raises:
            NotFound: the namespace has no such change set.
        """
        return ChangeSetDescription.read(await self._send("GET", id))

    async def plan(self, id: str) -> ChangeSetPlan:  # noqa: A002
        """Return what an apply would do now, in words, with checks and the hash of the plan.

        Args:
            id: the change set.
        """
        return ChangeSetPlan.read(await self._send("GET", id, "plan"))

    async def approve(self, id: str, *, plan: str | None = None) -> ChangeSetDescription:  # noqa: A002
        """Approve what an apply would do now. Its author cannot.

        Args:
            id: the change set.
            plan: the hash of the plan that was reviewed; another one is refused. None: whatever it is.
        """
        return ChangeSetDescription.read(await self._send("POST", id, "approve", body=_given(plan=plan)))

    async def unapprove(self, id: str) -> ChangeSetDescription:  # noqa: A002
        """Take your approval back.

        Args:
            id: the change set.
        """
        return ChangeSetDescription.read(await self._send("POST", id, "unapprove", body={}))

    async def apply(
        self,
        id: str,  # noqa: A002
        *,
        at: datetime | None = None,
        plan: str | None = None,
        break_glass: str | None = None,
    ) -> ChangeSetDescription:
        """Apply all settings in one transaction; if one of them moved, none is.

        Args:
            id: the change set.
            at: when the server applies it, with a time zone; None: now.
            plan: the hash of the plan that was reviewed; another one is refused. None: whatever it is.
            break_glass: why an admin does not wait for approvals, in an emergency; it is recorded and shown.

        Raises:
            ServerRefused: with reason `change_set_stale` a setting moved, and `details["moved"]` names it; with
                `change_needs_approval` approvals are missing.
        """
        body = _given(apply_at=_instant(at), plan=plan, break_glass=break_glass)
        return ChangeSetDescription.read(await self._send("POST", id, "apply", body=body))

    async def withdraw(self, id: str) -> ChangeSetDescription:  # noqa: A002
        """Give up a change set that is not applied.

        Args:
            id: the change set.
        """
        return ChangeSetDescription.read(await self._send("POST", id, "withdraw", body={}))

    async def rollback(self, id: str, reason: str) -> ChangeSetDescription:  # noqa: A002
        """Propose a change set that gives every setting its old value back.

        Args:
            id: the applied change set.
            reason: why.
        """
        return ChangeSetDescription.read(await self._send("POST", id, "rollback", body={"reason": reason}))

    async def list(
        self, *, status: ChangeSetStatus | None = None, limit: int | None = None
    ) -> AsyncIterator[ChangeSetDescription]:
        """Yield change sets, newest first. Pages are fetched on demand.

        Args:
            status: only those in this state.
            limit: maximum number of change sets; None is all.
        """
        token, left = None, limit
        while left is None or left > 0:
            query = {"state": status, "page_size": PAGE, "next_page_token": token}
            page = await self._client.transport.control(
                "GET", route("change-sets"), idempotent=True, query=query
            )
            for body in page["change_sets"][:left]:
                yield ChangeSetDescription.read(body)
            left = None if left is None else left - len(page["change_sets"])
            token = page["next_page_token"]
            if token is None:
                return

    async def _send(self, method: str, *parts: str, body: Json | None = None) -> Json:
        path = route("change-sets", *parts)
        return await self._client.transport.control(method, path, body, idempotent=method == "GET")


def _proposal(
    reason: str,
    queues: Mapping[str, Limits] | None,
    groups: Mapping[str, Limits] | None,
    namespace: Limits | None,
    cluster: Limits | None,
    apply_at: datetime | None,
    expires_in: timedelta | None,
) -> Json:
    seconds = None if expires_in is None else round(expires_in.total_seconds())
    return _given(
        reason=reason,
        queues=queues,
        groups=groups,
        namespace_limits=namespace,
        cluster=cluster,
        apply_at=_instant(apply_at),
        expires_in_seconds=seconds,
    )


def _instant(at: datetime | None) -> str | None:
    if at is not None and at.tzinfo is None:
        raise ValueError("The time has no time zone: give one, such as datetime.now(UTC)")
    return None if at is None else at.isoformat()


def _given(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}
