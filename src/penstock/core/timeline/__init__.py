"""The timeline of a run: lanes of spans, folded to a bounded size, and where the time of the run went."""
