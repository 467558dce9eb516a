"""Letters between runs in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from penstock.core.model import Letter, LetterKind
from penstock.stores.sql.session import Rows, Session


class SqlLetters:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def get(self, letter_id: str) -> Letter | None:
        return _first(await self._session.ask("get_letter", letter_id))

    async def lock(self, letter_id: str) -> Letter | None:
        return _first(await self._session.ask("lock_letter", letter_id))

    async def waiting(self, limit: int) -> Sequence[str]:
        return [row[1] for row in await self._session.ask("waiting_letters", limit)]

    def insert(self, letter: Letter) -> None:
        self._session.record("insert_letter", *astuple(letter))

    def delete(self, letter_id: str) -> None:
        self._session.record("delete_letter", letter_id)


def _first(rows: Rows) -> Letter | None:
    if not rows:
        return None
    _, letter_id, namespace, workflow_id, run_id, kind, payload, created_at_ms = rows[0]
    return Letter(letter_id, namespace, workflow_id, run_id, LetterKind(kind), payload, created_at_ms)
