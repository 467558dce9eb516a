"""The smallest change that meets a target: `penstock simulate find`.

targets       a figure of a queue and the most that it may be, or a time by which a backlog is gone
knobs         what may be raised, and its value in the load
feasibility   targets that no value of the knobs meets, known by flow balance without a simulation
search        galloping and bisection over simulations
consequences  what the change costs others, what binds next, and whether other seeds agree
"""
