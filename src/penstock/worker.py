"""Public module for workers: `from penstock.worker import Worker`."""

from penstock.sdk.replay.replayer import Replayer
from penstock.sdk.worker import Worker, WorkerMetrics, run_until_signalled, run_worker
from penstock.sdk.worker.claim_options import Claiming

__all__ = ["Claiming", "Replayer", "Worker", "WorkerMetrics", "run_until_signalled", "run_worker"]
