"""Parts of URLs that may hold a password: a refusal never repeats the URL, and the password is masked."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from penstock.schema.problems import InvalidValue
from penstock.settings.types.secret import HIDDEN

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:/\s@]*)(?::([0-9]{1,5}))?")


def check_text(text: str) -> None:
    if not text.isprintable() or " " in text:
        raise InvalidValue("must not contain spaces or control characters (write them as %20 and so on)")


def split(url: str, forms: str) -> SplitResult:
    """The parts of the URL, which must look like one of the forms."""
    if "#" in url:
        raise InvalidValue("must not contain # (write it as %23 if it belongs to the password)")
    try:
        return urlsplit(url)
    except ValueError:
        raise InvalidValue(f"must look like {forms}") from None


def masked_login(parts: SplitResult) -> tuple[str, str]:
    """The login up to its `@`, without the password, and the host after it."""
    login, at, host = parts.netloc.rpartition("@")
    if "@" in login:
        raise InvalidValue("must write @ inside a user name or password as %40")
    user, _, password = login.partition(":")
    return f"{user}:{HIDDEN}@" if password else f"{user}{at}", host


def check_host(host: str, *, may_be_empty: bool = False) -> None:
    found = _HOST.fullmatch(host)
    is_missing = found is None or not (found[1] or may_be_empty)
    if found is None or is_missing or (found[2] is not None and not 1 <= int(found[2]) <= 65535):
        raise InvalidValue(
            "must have host or host:port (port 1 to 65535) before the database"
            " (write @, :, / and ? inside a password as %40, %3A, %2F and %3F)"
        )
