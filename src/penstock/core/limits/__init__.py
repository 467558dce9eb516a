"""Limits of queues and scopes: how values become rules.

There are two things. *Values* are what somebody wrote down: a configuration declares them (`Declaration`), an operator
sets them while servers run (`Policy`: all settings of one queue or scope, each with author, reason and expiry), workers
report a rate (`WorkerRate`). `Admission` is one version of all values of the cluster. *Rules* are what holds for one
queue now: `Queue.limits` (`QueueLimits`: its window and scopes, the latter as `ScopeRules`) and `Queue.rules` (`Rules`:
cap, order, rates, what is limited by key). The gates of a claim read rules; values only explain them.

Where a change of a limit takes effect:

| Question | Answered by |
|---|---|
| Which value was declared for a queue? | `admission.declared` |
| May a declaration replace the stored one? | `declarations.is_older` |
| May a starting worker change a cap? | `declared_caps.decide` |
| What does a change of settings make of the old ones? | `policies.changed` |
| Which rate holds if operator, workers and system name one? | `rate_reports.effective_rate` |
| Which declared cap, which window and scopes hold for a queue now? | `admission.Admission.of` |
| Which cap, order, rates and limits by key hold for it? | `policies.rules`, cached as `Queue.rules` |
| How many dispatches does a rule leave? | `scheduling.gates`, with `rates` (GCRA) and `windows` (per minute) |
| Where does a claim obey it? | `scheduling.dispatch.allowance`, called by `scheduling.claim` |

A queue is read with its rules by the transaction that grants, under the lock that a change of its limits takes too: the
first claim after the commit of a change obeys it. `engine.limits` stores changes, and marks lanes that claims must
evaluate again.
"""
