"""Workers poll task queues, run workflow and activity tasks, and report their outcomes."""

from penstock.sdk.worker.entrypoint import run_until_signalled, run_worker
from penstock.sdk.worker.metrics import WorkerMetrics
from penstock.sdk.worker.worker import Worker

__all__ = ["Worker", "WorkerMetrics", "run_until_signalled", "run_worker"]
