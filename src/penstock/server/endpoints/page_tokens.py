"""Page tokens: opaque to clients, validated when they come back."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote, unquote

from penstock.core.model import Run
from penstock.core.scheduling.backlog import BEFORE_ALL_KEYS, KeyPlace
from penstock.errors import InvalidInput, Reason
from penstock.ports.tables.visibility import PageStart
from penstock.wire.responses import page_token


def decode_page_start(token: str | None) -> PageStart | None:
    """Where the next page begins; None for the first page."""
    if token is None:
        return None
    started, _, run_id = _decode(token).partition(":")
    if not started.isascii() or not started.isdigit() or len(started) > 18 or not run_id.isprintable():
        raise _invalid()
    return PageStart(int(started), run_id)


def page_token_after_run(run: Run) -> str:
    return encode_page_start(PageStart(run.started_at_ms, run.run_id))


def encode_page_start(place: PageStart) -> str:
    return page_token(f"{place.started_at_ms}:{place.run_id}")


def decode_key_place(token: str | None) -> KeyPlace:
    """The last key of the previous page; the place before all for the first page."""
    if token is None:
        return BEFORE_ALL_KEYS
    count, _, rest = _decode(token).partition(":")
    level, _, key = rest.partition(":")
    if not all(each.isascii() and each.isdigit() and len(each) <= 15 for each in (count, level)):
        raise _invalid()
    name = unquote(key, errors="replace")
    if not name.isprintable():
        raise _invalid()
    return KeyPlace(int(count), int(level), name)


def encode_key_place(place: KeyPlace) -> str:
    return page_token(f"{place.count}:{place.level}:{quote(place.key)}")


def decode_sequence(token: str | None) -> int:
    """The sequence of the last event of the previous page; 0 for the first page."""
    if token is None:
        return 0
    text = _decode(token)
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise _invalid()
    return int(text)


def _decode(token: str) -> str:
    try:
        return base64.b64decode(token, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise _invalid() from None


def _invalid() -> InvalidInput:
    return InvalidInput(
        Reason.INVALID_PAGE_TOKEN,
        "The page token was not issued by this server. Start from the first page.",
    )
