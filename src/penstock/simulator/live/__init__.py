"""Forecasts from the state of a running server: when is a backlog gone, and what would change that?

Theory of operation
-------------------
The state is what the API shows: waiting tasks by level and key, leases, due retries, workers, limits, and the samples
of the last minutes. It becomes a model (`live_model`): what waits is a backlog at the beginning, what runs occupies its
slots for the rest of its time, and tasks go on arriving at the rate of the last minutes. How long tasks take is running
tasks divided by dispatches (Little's law), so no journal is needed.

Flow balance comes first: a queue whose arrivals exceed what its limits allow never drains, and no simulation is
needed to say so. Otherwise the model is run on the scheduler (`forecast`). A backlog of 100,000 tasks is not run task
by task: a queue that is much longer than its slots behaves like a fluid, so the backlog and the time are shrunk by
one factor while rates, caps and durations stay as they are, and the times found are multiplied by it (`fluid_scale`).
If there are also many slots, all of slots, caps and rates are divided by a second factor, as long as no cap becomes
too small for that.

The range comes from what is not known: the same draws with arrivals and durations at the ends of their 95 % intervals.
"""
