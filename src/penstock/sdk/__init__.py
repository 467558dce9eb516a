"""The Python SDK: workflows as async code, activities, tasks, and the client and worker that carry them."""
