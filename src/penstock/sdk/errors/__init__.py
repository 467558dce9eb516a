"""Errors of the SDK: their types, their encoding in histories and reports, and their decoding.

Users import these names from `penstock.failures`.
"""
