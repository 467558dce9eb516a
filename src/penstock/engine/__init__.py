"""The engine's operations: load state, let the core decide, record the result in one transaction, notify.

Packages, from the lowest layer up (each imports only those before it):

- `runtime`: in-process state and timing; `context` and `long_poll` build on it
- `runs`: addressing runs, workflow ids, request ids, and appending to histories
- `limits`: queue settings, shared limits, budgets, rates reported by workers
- `activities`: activity task reports, retries, timeouts, detection of dead workers
- `matching`: polls, claims, the dispatcher, query tasks (sticky tasks: `core.scheduling.sticky`)
- `messaging`: signals, updates, queries, messages, streams, the outbox
- `visibility`: reading, searching and explaining runs and queues
- `workflows`: starts, workflow task reports, children, closing, repair, the outbox relay
- `operations`: namespaces, batch operations, retention, archive, export, journal
- `workers`: registration and build-id cohorts
- `maintenance`: the sweepers and their scheduler
"""
