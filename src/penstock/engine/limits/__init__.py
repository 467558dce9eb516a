"""Limits: queue settings, limits shared by queues, budgets, and rates reported by workers."""
