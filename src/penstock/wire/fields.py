"""Types of request fields, with their bounds."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from penstock.core import identifiers
from penstock.core.identifiers import NAME_MAX
from penstock.core.identifiers import WORKFLOW_ID_MAX as WORKFLOW_ID_MAX
from penstock.core.limits.admission import GROUP_NAME_MAX
from penstock.core.limits.policies import (
    AGING_EVERY_MAX,
    AGING_EVERY_MIN,
    AGING_WAIT_MAX_MS,
    KEYS_PER_CHANGE_MAX,
    LEASE_CAP_MAX,
    REASON_MAX,
    RETRY_RATE_MIN_MICRO,
)
from penstock.core.limits.rates import BURST_MAX_MS, RATE_MAX_MICRO
from penstock.core.limits.run_caps import KEY_MAX
from penstock.core.limits.windows import PER_MINUTE_MAX
from penstock.core.starts.unique_starts import KEY_MAX as UNIQUE_KEY_MAX
from penstock.wire.numbers import MICRO, MILLI

INT_MAX = 2**53 - 1
"""Upper bound of all integers: exact in every JSON implementation."""

PRINTABLE = r"\A[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]+\Z"
NO_NUL = r"\A[^\x00]*\Z"

Name = Annotated[str, Meta(min_length=1, max_length=NAME_MAX, pattern=identifiers.NAME.pattern)]
"""The name of a type, queue, worker or build: printable characters only."""

WorkflowId = Annotated[
    str, Meta(min_length=1, max_length=WORKFLOW_ID_MAX, pattern=identifiers.WORKFLOW_ID.pattern)
]
"""Printable characters, percent-encoded in paths."""
NamespaceName = Annotated[
    str, Meta(min_length=1, max_length=identifiers.NAMESPACE.most, pattern=identifiers.NAMESPACE.pattern)
]
NameOrBlank = Annotated[str, Meta(max_length=255, pattern=PRINTABLE.replace("+", "*"))]
RequestId = Annotated[str, Meta(min_length=1, max_length=255, pattern=PRINTABLE)]
Version = Annotated[str, Meta(max_length=64, pattern=PRINTABLE)]
Text1000 = Annotated[str, Meta(max_length=1000, pattern=NO_NUL)]
Message = Annotated[str, Meta(max_length=100_000)]
"""The message of a failure; long ones are truncated when stored."""

Seconds = Annotated[int, Meta(ge=1, le=315_360_000)]
"""A timeout, from one second to ten years."""

Delay = Annotated[int, Meta(ge=0, le=315_360_000)]
Milliseconds = Annotated[int, Meta(ge=1, le=315_360_000_000)]
Debounced = Annotated[float, Meta(ge=0.001, le=31_536_000)]
"""From one millisecond to a year."""
DelayMs = Annotated[int, Meta(ge=0, le=315_360_000_000)]
Summary = Annotated[str, Meta(max_length=400, pattern=NO_NUL)]
RetentionDays = Annotated[int, Meta(ge=1, le=365)]
Cost = Annotated[int, Meta(ge=0, le=1_000_000_000)]
TaskSlots = Annotated[int, Meta(ge=0, le=1_000_000)]
Slots = Annotated[int, Meta(ge=1, le=1_000_000)]
PollSeconds = Annotated[int, Meta(ge=0, le=600)]
"""The wait of a poll; reduced to the maximum of the server."""

HistoryPage = Annotated[int, Meta(ge=1, le=1000)]
TasksMax = Annotated[int, Meta(ge=1, le=100)]
Attempt = Annotated[int, Meta(ge=1, le=INT_MAX)]
Priority = Annotated[int, Meta(ge=0, le=9)]
"""A priority level; lower ones are dispatched first, 5 by default."""
FairnessKey = Annotated[str, Meta(max_length=64, pattern=PRINTABLE.replace("+", "*"))]
FAIRNESS_KEY_BYTES_MAX = 64
FairnessWeight = Annotated[float, Meta(ge=0.001, le=1000)]
PriorityKey = Annotated[int, Meta(ge=1, le=5)]
"""The levels 1, 3, 5, 7 and 9 under Temporal's name and range; 3 by default, which is level 5."""

NamedKey = Annotated[str, Meta(min_length=1, max_length=FAIRNESS_KEY_BYTES_MAX, pattern=PRINTABLE)]
"""A fairness key in requests of operators; tasks without a key have no settings of their own."""

PerKey = Meta(max_length=KEYS_PER_CHANGE_MAX)
RATE_MIN = 1 / MICRO
Rate = Annotated[float, Meta(ge=0, le=RATE_MAX_MICRO // MICRO)]
"""Dispatches per second: 0, which closes, or at least a millionth."""

RetryRate = Annotated[float, Meta(ge=RETRY_RATE_MIN_MICRO / MICRO, le=RATE_MAX_MICRO // MICRO)]
ReportedRate = Annotated[float, Meta(ge=RATE_MIN, le=RATE_MAX_MICRO // MICRO)]
LeaseMs = Annotated[int, Meta(ge=1000, le=86_400_000)]
BurstSeconds = Annotated[float, Meta(ge=0, le=BURST_MAX_MS // MILLI)]
LeaseCap = Annotated[int, Meta(ge=0, le=LEASE_CAP_MAX)]
PerMinute = Annotated[int, Meta(ge=0, le=PER_MINUTE_MAX)]
"""Dispatches or units of cost per minute; 0 closes."""

GroupName = Annotated[str, Meta(min_length=1, max_length=GROUP_NAME_MAX, pattern=identifiers.GROUP.pattern)]
"""The name of a budget group: printable characters except slash and colon, which separate the parts of scope names."""

UniqueKey = Annotated[str, Meta(min_length=1, max_length=UNIQUE_KEY_MAX, pattern=PRINTABLE)]
ConcurrencyKey = Annotated[str, Meta(min_length=1, max_length=KEY_MAX, pattern=PRINTABLE)]
"""The key of a cap on runs, chosen by who starts them."""
AgingWait = Annotated[float, Meta(ge=0, le=AGING_WAIT_MAX_MS // MILLI)]
AgingEvery = Annotated[int, Meta(ge=AGING_EVERY_MIN, le=AGING_EVERY_MAX)]
ReasonText = Annotated[str, Meta(max_length=REASON_MAX, pattern=NO_NUL)]
Names = Annotated[list[Name], Meta(max_length=10_000)]
Object = dict[str, Any]
