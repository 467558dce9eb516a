"""One operation's view of the tables."""

from __future__ import annotations

from penstock.ports.wakeups import Bell
from penstock.stores.memory.activities import MemoryActivities
from penstock.stores.memory.changes import Changes
from penstock.stores.memory.children import MemoryChildren
from penstock.stores.memory.cohorts import MemoryCohorts
from penstock.stores.memory.histories import MemoryHistories
from penstock.stores.memory.journal import MemoryJournal
from penstock.stores.memory.letters import MemoryLetters
from penstock.stores.memory.messages import MemoryMessages
from penstock.stores.memory.namespaces import MemoryNamespaces
from penstock.stores.memory.nonces import MemoryNonces
from penstock.stores.memory.outlook import MemoryOutlook
from penstock.stores.memory.policies import MemoryPolicies
from penstock.stores.memory.queries import MemoryQueries
from penstock.stores.memory.queues import MemoryQueues
from penstock.stores.memory.requests import MemoryRequests
from penstock.stores.memory.retention import MemoryRetention
from penstock.stores.memory.retry_budgets import MemoryRetryBudgets
from penstock.stores.memory.runs import MemoryRuns
from penstock.stores.memory.scopes import MemoryScopes
from penstock.stores.memory.streams import MemoryStreams
from penstock.stores.memory.survey import MemorySurvey
from penstock.stores.memory.tables import Tables
from penstock.stores.memory.tasks import MemoryTasks
from penstock.stores.memory.timers import MemoryTimers
from penstock.stores.memory.updates import MemoryUpdates
from penstock.stores.memory.visibility import MemoryVisibility
from penstock.stores.memory.workers import MemoryWorkers


class MemoryTx:
    def __init__(self, tables: Tables, now_ms: int, *, writable: bool, journals: bool) -> None:
        self.changes = changes = Changes(writable=writable)
        self.bells: dict[Bell, None] = {}
        self.now_ms = now_ms
        self.namespaces = MemoryNamespaces(tables, changes)
        self.runs = MemoryRuns(tables, changes)
        self.histories = MemoryHistories(tables, changes)
        self.activities = MemoryActivities(tables, changes)
        self.timers = MemoryTimers(tables, changes)
        self.children = MemoryChildren(tables, changes)
        self.letters = MemoryLetters(tables, changes)
        self.updates = MemoryUpdates(tables, changes)
        self.requests = MemoryRequests(tables, changes)
        self.messages = MemoryMessages(tables, changes)
        self.streams = MemoryStreams(tables, changes)
        self.journal = MemoryJournal(tables, changes, now_ms)
        self.tasks = MemoryTasks(tables, changes, now_ms, self.wake, self.journal if journals else None)
        self.queues = MemoryQueues(tables, changes, now_ms)
        self.policies = MemoryPolicies(tables, changes, now_ms)
        self.scopes = MemoryScopes(tables, changes, now_ms)
        self.retry_budgets = MemoryRetryBudgets(tables, changes, now_ms)
        self.workers = MemoryWorkers(tables, changes, now_ms)
        self.cohorts = MemoryCohorts(tables, changes)
        self.nonces = MemoryNonces(tables, changes)
        self.queries = MemoryQueries(tables, changes)
        self.visibility = MemoryVisibility(tables, changes)
        self.retention = MemoryRetention(tables, changes)
        self.survey = MemorySurvey(tables)
        self.outlook = MemoryOutlook(tables)

    def wake(self, bell: Bell) -> None:
        self.changes.allow()
        self.bells[bell] = None
