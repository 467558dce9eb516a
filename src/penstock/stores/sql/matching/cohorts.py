"""Build-id cohorts in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from penstock.core.model import Cohort
from penstock.stores.sql.session import Session


class SqlCohorts:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def get(self, namespace: str, task_queue: str, build_id: str) -> Cohort | None:
        rows = await self._session.fetch("get_cohort", namespace, task_queue, build_id)
        return Cohort(*rows[0][1:]) if rows else None

    async def promoted(self, namespace: str, task_queue: str) -> Cohort | None:
        rows = await self._session.fetch("promoted_cohort", namespace, task_queue)
        return Cohort(*rows[0][1:]) if rows else None

    async def list(self, namespace: str, task_queue: str) -> Sequence[Cohort]:
        return [Cohort(*row[1:]) for row in await self._session.fetch("list_cohorts", namespace, task_queue)]

    def save(self, cohort: Cohort) -> None:
        self._session.record("save_cohort", *astuple(cohort))
