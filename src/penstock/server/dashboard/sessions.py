"""Who looks at the dashboard: sign-in, sessions, and the proof that a change comes from our own page.

A token is exchanged once for a cookie, which scripts cannot read and which other sites cannot make a browser send. The
store keeps its digest (`core.operations.ui_sessions`), so a session ends on all servers at sign-out. It also ends when
the token that opened it is no longer configured: the fingerprint in its row is compared with those of the configured
tokens at each request.

A change needs more than the cookie: a token in a header, derived from the cookie, so that no other page can know it,
and an `Origin` (or, without one, `Sec-Fetch-Site`) that is ours.

Without authentication everybody has one session, whose secret lives as long as the process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Final

from penstock.core.operations.ui_sessions import SESSION_MS_MAX
from penstock.core.permissions import (
    ANYBODY,
    AuthDriver,
    AuthPolicy,
    Credential,
    Principal,
    Role,
    credentials,
)
from penstock.engine.context import EngineContext
from penstock.engine.operations import ui_sessions
from penstock.errors import Forbidden, InvalidInput, Reason, Unauthenticated

CSRF_HEADER: Final = "x-csrf-token"
CODE_MS: Final = 60_000
"""How long a one-time code is valid."""
NAME_MAX: Final = 64
_RESERVED: Final = frozenset({"declared", "none", "shared", "upstream", *(role.value for role in Role)})
_CODES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who is signed in."""

    principal: Principal
    name: str
    session_id: str
    csrf: str = field(repr=False)
    """What a change must carry in `X-CSRF-Token`."""

    @property
    def is_viewer(self) -> bool:
        return self.principal.role is Role.VIEWER

    @property
    def can_change(self) -> bool:
        return not self.is_viewer


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A new session, and the secret that its cookie carries."""

    secret: str = field(repr=False)
    visitor: Visitor


class Sessions:
    """Signs people in and out, and recognises them.

    Args:
        ctx: The server.
        policy: The tokens that open a session.
    """

    def __init__(self, ctx: EngineContext, policy: AuthPolicy) -> None:
        self._ctx = ctx
        self._driver = policy.driver
        self._credentials = [each for each in credentials(policy) if each.principal.role is not Role.WORKER]
        self._codes: dict[str, tuple[int, str]] = {}
        self._open_csrf = secrets.token_urlsafe(32)

    @property
    def needs_sign_in(self) -> bool:
        return self._driver is not AuthDriver.NONE

    @property
    def is_supported(self) -> bool:
        """Whether the driver lets a browser in: a signature over each request is nothing that one can make."""
        return self._driver is not AuthDriver.SIGNATURE

    def one_time_code(self, name: str, now_ms: int) -> str | None:
        """A code that signs somebody in as an administrator, once; None if no token has that role.

        Args:
            name: The author of the session's changes.
            now_ms: The time of this server.
        """
        if self._administrator() is None:
            return None
        code = secrets.token_urlsafe(24)
        if len(self._codes) < _CODES_MAX:
            self._codes[_digest(code)] = (now_ms + CODE_MS, name)
        return code

    async def sign_in(self, token: str, name: str) -> SignedIn:
        """Exchange a token for a session. Raises `Unauthenticated`, or `InvalidInput` for a name."""
        found: Credential | None = None
        presented = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        for each in self._credentials:
            known = hashlib.sha256(each.secret.encode("utf-8", "surrogateescape")).digest()
            if hmac.compare_digest(known, presented) and found is None:
                found = each
        if found is None:
            raise Unauthenticated(Reason.UNAUTHORIZED, "This token opens no dashboard here.")
        return await self._begin(found, checked_name(name) or found.principal.credential)

    async def sign_in_once(self, code: str, now_ms: int) -> SignedIn:
        """Exchange a one-time code for a session. Raises `Unauthenticated`."""
        expires_at_ms, name = self._codes.pop(_digest(code), (0, ""))
        administrator = self._administrator()
        if expires_at_ms <= now_ms or administrator is None:
            raise Unauthenticated(
                Reason.UNAUTHORIZED,
                "This link has been used, or is older than a minute. Sign in with the token instead.",
            )
        return await self._begin(administrator, name)

    async def find(self, secret: str | None) -> Visitor | None:
        """The visitor with this cookie, if the session is live and its token is still configured."""
        if not self.needs_sign_in:
            return Visitor(ANYBODY, "anybody", "", self._open_csrf)
        if not secret:
            return None
        session, now_ms = await ui_sessions.find(self._ctx, _digest(secret))
        if session is None:
            return None
        credential = next(
            (
                each
                for each in self._credentials
                if hmac.compare_digest(session.fingerprint, _keyed(secret, each.secret))
            ),
            None,
        )
        if credential is None:
            await ui_sessions.end(self._ctx, session.session_id)
            return None
        if session.is_due(now_ms):
            await ui_sessions.touch(self._ctx, session.session_id)
        return _visitor(credential, session.name, session.session_id, secret)

    async def sign_out(self, visitor: Visitor) -> None:
        if visitor.session_id:
            await ui_sessions.end(self._ctx, visitor.session_id)

    async def _begin(self, credential: Credential, name: str) -> SignedIn:
        secret = secrets.token_urlsafe(32)
        role, fingerprint = credential.principal.role.value, _keyed(secret, credential.secret)
        session = await ui_sessions.begin(self._ctx, _digest(secret), name, role, fingerprint)
        return SignedIn(secret, _visitor(credential, name, session.session_id, secret))

    def _administrator(self) -> Credential | None:
        return next((each for each in self._credentials if each.principal.role is Role.ADMIN), None)


def check_change(visitor: Visitor, headers: Mapping[str, str]) -> None:
    """Raise `Forbidden` unless a change comes from a page of this server, in this session."""
    check_origin(headers)
    if not hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), visitor.csrf.encode()):
        raise Forbidden(
            Reason.FORBIDDEN,
            "This page is older than your session, so nothing was changed. Reload it, and do that again.",
        )


def check_origin(headers: Mapping[str, str]) -> None:
    """Raise `Forbidden` for a request that a page of another origin made, or that does not say whose it is."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if site not in (None, "same-origin"):
        raise _foreign()
    if origin is None:
        if site is None:
            raise _foreign()
    elif origin.partition("://")[2].lower() != headers.get("host", "").lower():
        raise _foreign()


def _foreign() -> Forbidden:
    return Forbidden(
        Reason.FORBIDDEN, "The dashboard takes changes only from its own pages. Nothing was changed."
    )


def checked_name(name: str) -> str:
    """A name without surrounding space; raises `InvalidInput` if it cannot be the author of changes."""
    name = name.strip()
    if len(name) > NAME_MAX or not name.isprintable() or name.lower() in _RESERVED or ":" in name:
        raise InvalidInput(
            Reason.VALIDATION_FAILED,
            f"A name has at most {NAME_MAX} visible characters and no colon, and is not the name of a role.",
        )
    return name


def cookie_name(headers: Mapping[str, str]) -> str:
    """Cookies are shared by all ports of a host, so the port is part of the name."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"penstock_ui_{port}" if port.isdigit() else "penstock_ui"


def read_cookie(headers: Mapping[str, str]) -> str | None:
    """The secret of the session's cookie, if there is one."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(cookie_name(headers))
    except CookieError:
        return None
    return found.value if found is not None else None


def cookie(headers: Mapping[str, str], secret: str, *, over_tls: bool) -> str:
    """The header that sets the cookie of a session, or, with an empty secret, removes it.

    Args:
        headers: The request's headers.
        secret: The value.
        over_tls: Whether the browser speaks TLS, to this server or to its proxy.
    """
    lasts = SESSION_MS_MAX // 1000 if secret else 0
    secure = "; Secure" if over_tls else ""
    return f"{cookie_name(headers)}={secret}; Path=/ui; Max-Age={lasts}; HttpOnly; SameSite=Strict{secure}"


def _visitor(credential: Credential, name: str, session_id: str, secret: str) -> Visitor:
    principal = Principal(name, credential.principal.role, credential.principal.acts_as)
    return Visitor(principal, name, session_id, _keyed(secret, "csrf"))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _keyed(secret: str, text: str) -> str:
    """An HMAC of some text: worthless without the secret, which only the browser has."""
    key, message = (each.encode("utf-8", "surrogateescape") for each in (secret, text))
    return hmac.new(key, message, hashlib.sha256).hexdigest()
