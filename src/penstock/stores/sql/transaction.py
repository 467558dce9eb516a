"""The transaction of one operation over a SQL session."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from penstock.ports.wakeups import Topic
from penstock.stores.sql.limits.change_sets import SqlChangeSets
from penstock.stores.sql.limits.policies import SqlPolicies
from penstock.stores.sql.limits.retry_budgets import SqlRetryBudgets
from penstock.stores.sql.limits.run_places import SqlRunPlaces
from penstock.stores.sql.limits.scopes import SqlScopes
from penstock.stores.sql.maintenance.next_due import SqlNextDue
from penstock.stores.sql.maintenance.retention import SqlRetention
from penstock.stores.sql.matching.queues import SqlQueues
from penstock.stores.sql.matching.workers import SqlCohorts, SqlWorkers
from penstock.stores.sql.messaging.messages import SqlMessages
from penstock.stores.sql.messaging.outbox import SqlOutbox
from penstock.stores.sql.messaging.requests import SqlRequests
from penstock.stores.sql.messaging.streams import SqlStreams
from penstock.stores.sql.messaging.updates import SqlUpdates
from penstock.stores.sql.operations.external_payloads import SqlExternalPayloads
from penstock.stores.sql.operations.journal import SqlJournal
from penstock.stores.sql.operations.namespaces import SqlNamespaces
from penstock.stores.sql.operations.nonces import SqlNonces
from penstock.stores.sql.operations.simulations import SqlSimulations
from penstock.stores.sql.operations.ui_sessions import SqlUiSessions
from penstock.stores.sql.schedules.schedules import SqlSchedules
from penstock.stores.sql.series.series import SqlSeries
from penstock.stores.sql.session import RepositoryAttribute, Session
from penstock.stores.sql.tasks.activities import SqlActivities
from penstock.stores.sql.tasks.query_tasks import SqlQueries
from penstock.stores.sql.tasks.tasks import SqlTasks
from penstock.stores.sql.visibility.namespace_stats import SqlNamespaceStats
from penstock.stores.sql.visibility.visibility import SqlVisibility
from penstock.stores.sql.workflows.children import SqlChildren
from penstock.stores.sql.workflows.histories import SqlHistories
from penstock.stores.sql.workflows.runs import SqlRuns
from penstock.stores.sql.workflows.timers import SqlTimers
from penstock.stores.sql.workflows.unique_keys import SqlUniqueKeys


class SqlTx(Struct, dict=True):
    """Gives access to all tables through the session of an operation."""

    session: Session
    now_ms: int
    wake: Callable[[Topic], None]

    namespaces = RepositoryAttribute(SqlNamespaces)
    runs = RepositoryAttribute(SqlRuns)
    histories = RepositoryAttribute(SqlHistories)
    activities = RepositoryAttribute(SqlActivities)
    timers = RepositoryAttribute(SqlTimers)
    children = RepositoryAttribute(SqlChildren)
    outbox = RepositoryAttribute(SqlOutbox)
    updates = RepositoryAttribute(SqlUpdates)
    requests = RepositoryAttribute(SqlRequests)
    messages = RepositoryAttribute(SqlMessages)
    streams = RepositoryAttribute(SqlStreams)
    tasks = RepositoryAttribute(SqlTasks)
    queues = RepositoryAttribute(SqlQueues)
    journal = RepositoryAttribute(SqlJournal)
    policies = RepositoryAttribute(SqlPolicies)
    retry_budgets = RepositoryAttribute(SqlRetryBudgets)
    workers = RepositoryAttribute(SqlWorkers)
    cohorts = RepositoryAttribute(SqlCohorts)
    queries = RepositoryAttribute(SqlQueries)
    nonces = RepositoryAttribute(SqlNonces)
    retention = RepositoryAttribute(SqlRetention)
    namespace_stats = RepositoryAttribute(SqlNamespaceStats)
    schedules = RepositoryAttribute(SqlSchedules)
    next_due = RepositoryAttribute(SqlNextDue)
    visibility = RepositoryAttribute(SqlVisibility)
    scopes = RepositoryAttribute(SqlScopes)
    run_places = RepositoryAttribute(SqlRunPlaces)
    unique_keys = RepositoryAttribute(SqlUniqueKeys)
    series = RepositoryAttribute(SqlSeries)
    ui_sessions = RepositoryAttribute(SqlUiSessions)
    change_sets = RepositoryAttribute(SqlChangeSets)
    simulations = RepositoryAttribute(SqlSimulations)
    external_payloads = RepositoryAttribute(SqlExternalPayloads)
