"""The Python SDK: workflows, activities, tasks, clients and workers."""
