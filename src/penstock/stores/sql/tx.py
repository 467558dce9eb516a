"""All nouns of the SQL store over one session."""

from __future__ import annotations

from penstock.stores.sql.activities import SqlActivities
from penstock.stores.sql.children import SqlChildren
from penstock.stores.sql.cohorts import SqlCohorts
from penstock.stores.sql.histories import SqlHistories
from penstock.stores.sql.journal import SqlJournal
from penstock.stores.sql.known import Known
from penstock.stores.sql.lazily import lazily, noun
from penstock.stores.sql.letters import SqlLetters
from penstock.stores.sql.messages import SqlMessages
from penstock.stores.sql.namespaces import SqlNamespaces
from penstock.stores.sql.nonces import SqlNonces
from penstock.stores.sql.outlook import SqlOutlook
from penstock.stores.sql.policies import SqlPolicies
from penstock.stores.sql.queries import SqlQueries
from penstock.stores.sql.queues import SqlQueues
from penstock.stores.sql.requests import SqlRequests
from penstock.stores.sql.retention import SqlRetention
from penstock.stores.sql.retry_budgets import SqlRetryBudgets
from penstock.stores.sql.runs import SqlRuns
from penstock.stores.sql.scopes import SqlScopes
from penstock.stores.sql.session import Session
from penstock.stores.sql.streams import SqlStreams
from penstock.stores.sql.survey import SqlSurvey
from penstock.stores.sql.tasks import SqlTasks
from penstock.stores.sql.timers import SqlTimers
from penstock.stores.sql.updates import SqlUpdates
from penstock.stores.sql.visibility import SqlVisibility
from penstock.stores.sql.workers import SqlWorkers


class SqlTx:
    """What an operation holds; each noun is made when it is first used."""

    def __init__(self, session: Session, known: Known) -> None:
        self.session = session
        self.now_ms = session.now_ms
        self.wake = session.wake
        self._known = known

    namespaces = noun(SqlNamespaces)
    runs = noun(SqlRuns)
    histories = noun(SqlHistories)
    activities = noun(SqlActivities)
    timers = noun(SqlTimers)
    children = noun(SqlChildren)
    letters = noun(SqlLetters)
    updates = noun(SqlUpdates)
    requests = noun(SqlRequests)
    messages = noun(SqlMessages)
    streams = noun(SqlStreams)
    tasks = noun(SqlTasks)
    journal = noun(SqlJournal)
    policies = noun(SqlPolicies)
    retry_budgets = noun(SqlRetryBudgets)
    workers = noun(SqlWorkers)
    cohorts = noun(SqlCohorts)
    queries = noun(SqlQueries)
    nonces = noun(SqlNonces)
    retention = noun(SqlRetention)
    survey = noun(SqlSurvey)
    outlook = noun(SqlOutlook)
    visibility = noun(SqlVisibility)

    @lazily
    def queues(self) -> SqlQueues:
        return SqlQueues(self.session, self._known)

    @lazily
    def scopes(self) -> SqlScopes:
        return SqlScopes(self.session, self._known)
