"""The transaction of one operation over the tables."""

from __future__ import annotations

from penstock.ports.wakeups import Topic
from penstock.stores.memory.changes import Changes
from penstock.stores.memory.limits.policies import MemoryPolicies
from penstock.stores.memory.limits.retry_budgets import MemoryRetryBudgets
from penstock.stores.memory.limits.scopes import MemoryScopes
from penstock.stores.memory.maintenance.next_due import MemoryNextDue
from penstock.stores.memory.maintenance.retention import MemoryRetention
from penstock.stores.memory.matching.cohorts import MemoryCohorts
from penstock.stores.memory.matching.queues import MemoryQueues
from penstock.stores.memory.matching.workers import MemoryWorkers
from penstock.stores.memory.messaging.messages import MemoryMessages
from penstock.stores.memory.messaging.outbox import MemoryOutbox
from penstock.stores.memory.messaging.requests import MemoryRequests
from penstock.stores.memory.messaging.streams import MemoryStreams
from penstock.stores.memory.messaging.updates import MemoryUpdates
from penstock.stores.memory.operations.journal import MemoryJournal
from penstock.stores.memory.operations.namespaces import MemoryNamespaces
from penstock.stores.memory.operations.nonces import MemoryNonces
from penstock.stores.memory.tables import Tables
from penstock.stores.memory.tasks.activities import MemoryActivities
from penstock.stores.memory.tasks.query_tasks import MemoryQueries
from penstock.stores.memory.tasks.tasks import MemoryTasks
from penstock.stores.memory.visibility.namespace_stats import MemoryNamespaceStats
from penstock.stores.memory.visibility.visibility import MemoryVisibility
from penstock.stores.memory.workflows.children import MemoryChildren
from penstock.stores.memory.workflows.histories import MemoryHistories
from penstock.stores.memory.workflows.runs import MemoryRuns
from penstock.stores.memory.workflows.timers import MemoryTimers


class MemoryTx:
    def __init__(self, tables: Tables, now_ms: int, *, writable: bool, journals: bool) -> None:
        self.changes = changes = Changes(writable=writable)
        self.topics: dict[Topic, None] = {}
        self.now_ms = now_ms
        of = (tables, changes, now_ms)
        self.namespaces = MemoryNamespaces(*of)
        self.runs = MemoryRuns(*of)
        self.histories = MemoryHistories(*of)
        self.activities = MemoryActivities(*of)
        self.timers = MemoryTimers(*of)
        self.children = MemoryChildren(*of)
        self.outbox = MemoryOutbox(*of)
        self.updates = MemoryUpdates(*of)
        self.requests = MemoryRequests(*of)
        self.messages = MemoryMessages(*of)
        self.streams = MemoryStreams(*of)
        self.journal = MemoryJournal(*of)
        self.tasks = MemoryTasks(tables, changes, now_ms, self.wake, self.journal if journals else None)
        self.queues = MemoryQueues(*of)
        self.policies = MemoryPolicies(*of)
        self.scopes = MemoryScopes(*of)
        self.retry_budgets = MemoryRetryBudgets(*of)
        self.workers = MemoryWorkers(*of)
        self.cohorts = MemoryCohorts(*of)
        self.nonces = MemoryNonces(*of)
        self.queries = MemoryQueries(*of)
        self.visibility = MemoryVisibility(*of)
        self.retention = MemoryRetention(*of)
        self.namespace_stats = MemoryNamespaceStats(*of)
        self.next_due = MemoryNextDue(*of)

    def wake(self, topic: Topic) -> None:
        self.changes.allow()
        self.topics[topic] = None
