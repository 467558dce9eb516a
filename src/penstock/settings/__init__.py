"""The only reader of environment and config files: text in, frozen policies out."""

from __future__ import annotations

from penstock.core.permissions import AuthDriver, SignatureProfile
from penstock.settings.database_url import StoreKind
from penstock.settings.policies import (
    AuthPolicy,
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
from penstock.settings.reference import Row, describe, reference_markdown
from penstock.settings.secret import Secret

__all__ = [
    "AuthDriver",
    "AuthPolicy",
    "LeasePolicy",
    "LimitPolicy",
    "ListenPolicy",
    "LogFormat",
    "LogLevel",
    "LogPolicy",
    "PollPolicy",
    "RoleSecrets",
    "Row",
    "Secret",
    "Settings",
    "SignatureProfile",
    "SqliteSynchronous",
    "StoreKind",
    "StorePolicy",
    "describe",
    "load",
    "reference_markdown",
]
