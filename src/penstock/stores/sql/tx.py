"""All nouns of the SQL store over one session."""

from __future__ import annotations

from penstock.ports.wakeups import Bell
from penstock.stores.sql.activities import SqlActivities
from penstock.stores.sql.children import SqlChildren
from penstock.stores.sql.cohorts import SqlCohorts
from penstock.stores.sql.histories import SqlHistories
from penstock.stores.sql.journal import SqlJournal
from penstock.stores.sql.known import Known
from penstock.stores.sql.lazily import lazily
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
        self._known = known

    @property
    def now_ms(self) -> int:
        return self.session.now_ms

    @lazily
    def namespaces(self) -> SqlNamespaces:
        return SqlNamespaces(self.session)

    @lazily
    def runs(self) -> SqlRuns:
        return SqlRuns(self.session)

    @lazily
    def histories(self) -> SqlHistories:
        return SqlHistories(self.session)

    @lazily
    def activities(self) -> SqlActivities:
        return SqlActivities(self.session)

    @lazily
    def timers(self) -> SqlTimers:
        return SqlTimers(self.session)

    @lazily
    def children(self) -> SqlChildren:
        return SqlChildren(self.session)

    @lazily
    def letters(self) -> SqlLetters:
        return SqlLetters(self.session)

    @lazily
    def updates(self) -> SqlUpdates:
        return SqlUpdates(self.session)

    @lazily
    def requests(self) -> SqlRequests:
        return SqlRequests(self.session)

    @lazily
    def messages(self) -> SqlMessages:
        return SqlMessages(self.session)

    @lazily
    def streams(self) -> SqlStreams:
        return SqlStreams(self.session)

    @lazily
    def tasks(self) -> SqlTasks:
        return SqlTasks(self.session)

    @lazily
    def queues(self) -> SqlQueues:
        return SqlQueues(self.session, self._known)

    @lazily
    def scopes(self) -> SqlScopes:
        return SqlScopes(self.session, self._known)

    @lazily
    def journal(self) -> SqlJournal:
        return SqlJournal(self.session)

    @lazily
    def policies(self) -> SqlPolicies:
        return SqlPolicies(self.session)

    @lazily
    def retry_budgets(self) -> SqlRetryBudgets:
        return SqlRetryBudgets(self.session)

    @lazily
    def workers(self) -> SqlWorkers:
        return SqlWorkers(self.session)

    @lazily
    def cohorts(self) -> SqlCohorts:
        return SqlCohorts(self.session)

    @lazily
    def queries(self) -> SqlQueries:
        return SqlQueries(self.session)

    @lazily
    def nonces(self) -> SqlNonces:
        return SqlNonces(self.session)

    @lazily
    def retention(self) -> SqlRetention:
        return SqlRetention(self.session)

    @lazily
    def survey(self) -> SqlSurvey:
        return SqlSurvey(self.session)

    @lazily
    def outlook(self) -> SqlOutlook:
        return SqlOutlook(self.session)

    @lazily
    def visibility(self) -> SqlVisibility:
        return SqlVisibility(self.session)

    def wake(self, bell: Bell) -> None:
        self.session.wake(bell)
