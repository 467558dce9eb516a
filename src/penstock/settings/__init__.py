"""The only reader of environment and config files: text in, frozen policies out."""

from __future__ import annotations

from penstock.core.permissions import AuthDriver, SignatureProfile
from penstock.settings.declared_adapters import DeclaredAdapter
from penstock.settings.limits.queue_limits import QueueLimit, limits_of_queue
from penstock.settings.policies import (
    AuthSettings,
    CoordinationKind,
    CoordinationPolicy,
    DashboardPolicy,
    ExternalStorageLimits,
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
from penstock.settings.reference import SettingRow, describe, reference_markdown
from penstock.settings.types.database_url import StoreKind
from penstock.settings.types.redis_url import RedisLocation
from penstock.settings.types.secret import Secret

__all__ = [
    "AuthDriver",
    "AuthSettings",
    "CoordinationKind",
    "CoordinationPolicy",
    "DashboardPolicy",
    "DeclaredAdapter",
    "ExternalStorageLimits",
    "LeasePolicy",
    "LimitPolicy",
    "ListenPolicy",
    "LogFormat",
    "LogLevel",
    "LogPolicy",
    "PollPolicy",
    "QueueLimit",
    "RedisLocation",
    "RoleSecrets",
    "Secret",
    "SettingRow",
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
