"""Traces: a load that a server recorded, as a file, and its replay on the simulator.

Theory of operation
-------------------
The journal of a server has a line for each arrival, grant and end of a task, each worker that comes and goes, and each
change of a limit. A trace is a window of it that explains itself: what waited and ran at its beginning is carried
over, and workers and limits are written as they were, so that nothing else of the server is needed to replay it.

    trace_file    the format: a first line that says what it is, events, and a last line that says what is missing
    recorder      from the journal to a trace
    recorded_limits, recorded_workers   the limits and the workers of the window, put together from lines and state
    anonymiser    stable random words in place of names
    replay        from a trace to a workload: durations as recorded, and arrivals after the ends that caused them
    workload_changes   what a rehearsal changes in a recorded workload
    calibration   how well the replay of the unchanged window meets what was recorded
    fitted_model  from a trace to a model that can be changed by hand

Causes matter: the next activity of a workflow arrives because the last one ended. Replayed at its recorded moment it
would arrive too late when the change makes the first one faster. So an arrival with a cause is replayed at the end of
that task plus the recorded think time; all others at their recorded moments.

Calibration before advice: the unchanged window is replayed first, and if it does not reproduce what was recorded, the
answer begins with "Do not trust this".
"""
