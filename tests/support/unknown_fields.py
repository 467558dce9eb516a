"""Finds clients that send fields which the server does not know."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def none_are_sent(owner: Any, reader: str) -> Iterator[None]:
    """Fail at the end if an answer in the block warned of an unknown field.

    Args:
        owner: The class or module of the client that reads answers.
        reader: The name of its function that returns the body of an answer, or a value that has it as `body`.
    """
    found: list[str] = []
    read = getattr(owner, reader)

    def recording(*args: Any, **options: Any) -> Any:
        answer = read(*args, **options)
        body = getattr(answer, "body", answer)
        warnings = body.get("warnings") if isinstance(body, dict) else None
        found.extend(each["field"] for each in warnings or () if each.get("reason") == "unknown_field")
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, reader, recording)
        yield
    assert found == [], f"the client sends fields that the server does not know: {sorted(set(found))}"
