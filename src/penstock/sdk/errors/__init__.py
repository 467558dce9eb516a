"""How errors travel: what they are, how they are written down, and how they are restored.

The names that users import are in `penstock.sdk.failures`.
"""
