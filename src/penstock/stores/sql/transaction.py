"""The transaction of one operation over a SQL session."""

from __future__ import annotations

from penstock.stores.sql.cached_attribute import cached_attribute, per_session
from penstock.stores.sql.immutable_cache import ImmutableCache
from penstock.stores.sql.limits.policies import SqlPolicies
from penstock.stores.sql.limits.retry_budgets import SqlRetryBudgets
from penstock.stores.sql.limits.scopes import SqlScopes
from penstock.stores.sql.maintenance.next_due import SqlNextDue
from penstock.stores.sql.maintenance.retention import SqlRetention
from penstock.stores.sql.matching.cohorts import SqlCohorts
from penstock.stores.sql.matching.queues import SqlQueues
from penstock.stores.sql.matching.workers import SqlWorkers
from penstock.stores.sql.messaging.messages import SqlMessages
from penstock.stores.sql.messaging.outbox import SqlOutbox
from penstock.stores.sql.messaging.requests import SqlRequests
from penstock.stores.sql.messaging.streams import SqlStreams
from penstock.stores.sql.messaging.updates import SqlUpdates
from penstock.stores.sql.operations.journal import SqlJournal
from penstock.stores.sql.operations.namespaces import SqlNamespaces
from penstock.stores.sql.operations.nonces import SqlNonces
from penstock.stores.sql.session import Session
from penstock.stores.sql.tasks.activities import SqlActivities
from penstock.stores.sql.tasks.query_tasks import SqlQueries
from penstock.stores.sql.tasks.tasks import SqlTasks
from penstock.stores.sql.visibility.namespace_stats import SqlNamespaceStats
from penstock.stores.sql.visibility.visibility import SqlVisibility
from penstock.stores.sql.workflows.children import SqlChildren
from penstock.stores.sql.workflows.histories import SqlHistories
from penstock.stores.sql.workflows.runs import SqlRuns
from penstock.stores.sql.workflows.timers import SqlTimers


class SqlTx:
    """Gives access to all tables; each accessor is created on first use."""

    def __init__(self, session: Session, immutable: ImmutableCache) -> None:
        self.session = session
        self.now_ms = session.now_ms
        self.wake = session.wake
        self._immutable = immutable

    namespaces = per_session(SqlNamespaces)
    runs = per_session(SqlRuns)
    histories = per_session(SqlHistories)
    activities = per_session(SqlActivities)
    timers = per_session(SqlTimers)
    children = per_session(SqlChildren)
    outbox = per_session(SqlOutbox)
    updates = per_session(SqlUpdates)
    requests = per_session(SqlRequests)
    messages = per_session(SqlMessages)
    streams = per_session(SqlStreams)
    tasks = per_session(SqlTasks)
    journal = per_session(SqlJournal)
    policies = per_session(SqlPolicies)
    retry_budgets = per_session(SqlRetryBudgets)
    workers = per_session(SqlWorkers)
    cohorts = per_session(SqlCohorts)
    queries = per_session(SqlQueries)
    nonces = per_session(SqlNonces)
    retention = per_session(SqlRetention)
    namespace_stats = per_session(SqlNamespaceStats)
    next_due = per_session(SqlNextDue)
    visibility = per_session(SqlVisibility)

    @cached_attribute
    def queues(self) -> SqlQueues:
        return SqlQueues(self.session, self._immutable)

    @cached_attribute
    def scopes(self) -> SqlScopes:
        return SqlScopes(self.session, self._immutable)
