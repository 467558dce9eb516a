"""The workflow port of our own engine: calls of workflow code become commands."""

from penstock.sdk.replay.port.replay_port import ReplayPort

__all__ = ["ReplayPort"]
