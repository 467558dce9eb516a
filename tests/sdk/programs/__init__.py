"""Small programs of the kinds that people bring from Temporal, by subject. `test_programs.py` runs them all."""
