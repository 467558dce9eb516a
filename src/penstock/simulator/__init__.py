"""Rehearsal: run the engine's own scheduling on a virtual clock, on an invented or recorded load.

Theory of operation
-------------------
A simulation is a discrete-event simulation around the production engine. Arrivals, ends of tasks, joining and leaving
workers and changes of limits are events in a heap ordered by time (`run`). The clock is moved to the next event, the
event is carried out by the engine's own operations (`engine_driver`): starts, claims, reports and changes of limits are
those of the server, on an ephemeral store whose time is the virtual clock. No rule of scheduling is written here, so
the simulator cannot disagree with the server about who goes next (`simulator-is-the-scheduler`).

    model_file  a workload as a TOML file: arrivals, durations, workers, limits
    changes     what is changed in it: `--set`, `--workers`, `--key`
    workload    what is simulated, as values: arrivals with the durations of their attempts, workers, settings
    run         the event heap and the queues that may claim now
    load_source where replications come from: a model, or a trace
    traces      recorded loads: the format, their replay, and whether it can be trusted
    measures    waits, shares, use of slots, and seconds of waiting by cause
    comparison  the same luck with and without a change, in replications, and the sentence that sums it up
    charts      plots as SVG

Common random numbers
---------------------
Nothing is drawn in sequence. Each draw is a hash of the seed and of what it is for: stream, number of the task,
attempt, purpose (`quantiles.uniform`). The n-th task of a stream therefore has the same duration with and without the
change, and the difference between both runs is the effect of the change and little else. Replications repeat both
runs with other seeds until the figure in question is known well enough.

What it does not see
--------------------
Workers take no time to poll and to report. Durations do not react to the load of what the tasks call. A workflow is
represented by its tasks: in a model no arrival is caused by the end of another task, and in a trace those are that the
journal names. Tasks are not sticky to a worker, and their types are not restricted by build.
Each answer names these limits.
"""
