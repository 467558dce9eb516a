"""The only reader of environment and config files: text in, frozen policies out."""

from __future__ import annotations

from penstock.core.permissions import AuthDriver, SignatureProfile
from penstock.settings.database_url import StoreKind
from penstock.settings.line_limits import LineLimit, limits_of_queue
from penstock.settings.policies import (
    AuthPolicy,
    CoordinationKind,
    CoordinationPolicy,
    LeasePolicy,
    LimitPolicy,
    ListenPolicy,
    LogFormat,
    LogLevel,
    LogPolicy,
    PollPolicy,
    RoleSecrets,
    Settings,
    SqliteSynchronous,
    StorePolicy,
)
from penstock.settings.reader import load
from penstock.settings.redis_url import RedisLocation
from penstock.settings.reference import Row, describe, reference_markdown
from penstock.settings.secret import Secret

__all__ = [
    "AuthDriver",
    "AuthPolicy",
    "CoordinationKind",
    "CoordinationPolicy",
    "LeasePolicy",
    "LimitPolicy",
    "LineLimit",
    "ListenPolicy",
    "LogFormat",
    "LogLevel",
    "LogPolicy",
    "PollPolicy",
    "RedisLocation",
    "RoleSecrets",
    "Row",
    "Secret",
    "Settings",
    "SignatureProfile",
    "SqliteSynchronous",
    "StoreKind",
    "StorePolicy",
    "describe",
    "limits_of_queue",
    "load",
    "reference_markdown",
]
