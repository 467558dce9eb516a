"""The submitter's side: where each activity goes and with which options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from penstock.dispatch.options import DispatchOptions, Layer
from penstock.dispatch.routing.layers import CALL_SITE, OWN_QUEUE, RankedLayer, merge
from penstock.dispatch.routing.models import QueueOptions, RetryPolicyConfig, Route
from penstock.dispatch.routing.trace_log import emit


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The baseline of all options, the home queue and the routes."""

    default_task_queue: str = "default"
    activity_queues: Mapping[str, Route] = field(default_factory=dict)
    default_activity_start_to_close_timeout: timedelta = timedelta(minutes=10)
    default_activity_heartbeat_timeout: timedelta | None = None
    retry_policy_config: RetryPolicyConfig = field(default_factory=RetryPolicyConfig)
    workflow_execution_timeout: timedelta | None = timedelta(hours=1)
    run_timeout: timedelta | None = None
    task_timeout: timedelta | None = timedelta(seconds=10)
    start_delay: timedelta | None = None
    rpc_timeout: timedelta | None = None

    def resolve_queue(self, activity_name: str, routing_key: str | None = None) -> str | None:
        """The task queue of an activity; None, while no route exists, for the workflow's own queue."""
        return self.queue_and_source(activity_name, routing_key)[0]

    def resolve_dispatch(
        self,
        activity_name: str,
        routing_key: str | None = None,
        queue_options_by_queue: Mapping[str, QueueOptions] | None = None,
        is_traced: bool = False,
    ) -> DispatchOptions:
        """The options of one activity call. The trace, if enabled, is one INFO record of `penstock.dispatch`."""
        options = self.resolve_layers(activity_name, routing_key, queue_options_by_queue)
        if is_traced:
            emit(activity_name, routing_key, options)
        return replace(options, routing_key=routing_key, was_traced=is_traced)

    def resolve_layers(
        self,
        activity_name: str,
        routing_key: str | None,
        queue_options: Mapping[str, QueueOptions] | None,
        decorator: Layer | None = None,
        call_site: Layer | None = None,
    ) -> DispatchOptions:
        """Merge with options given in code: the definition overrides the baseline, the call overrides all."""
        queue, source = self.queue_and_source(activity_name, routing_key)
        return merge(
            queue, source, self.stack(activity_name, routing_key, queue_options, decorator, call_site)
        )

    def queue_and_source(self, activity_name: str, routing_key: str | None) -> tuple[str | None, str]:
        if not self.activity_queues:
            return None, OWN_QUEUE
        route = self.activity_queues.get(activity_name)
        if route is None:
            return self.default_task_queue, "default_task_queue"
        queue, place = route.queue_for(routing_key)
        return queue, f"activity_queues.{place[0]}"

    def places(self, activity_name: str, routing_key: str | None) -> object:
        """The entries of the file that decide for a call; calls with equal entries have equal options."""
        route = self.activity_queues.get(activity_name)
        return None if route is None else route.places(routing_key)

    def stack(
        self,
        activity_name: str,
        routing_key: str | None,
        queue_options: Mapping[str, QueueOptions] | None,
        decorator: Layer | None = None,
        call_site: Layer | None = None,
    ) -> list[RankedLayer]:
        """All layers, lowest first."""
        standings = [RankedLayer("baseline", "baseline", self.baseline(), ("worker_config",))]
        if decorator is not None:
            standings.append(RankedLayer("decorator", "decorator", decorator))
        queue = call_site.task_queue if call_site is not None else None
        if queue is None:
            queue = self.resolve_queue(activity_name, routing_key)
        if queue is None:
            queue = self.default_task_queue
        if queue_options is not None and (options := queue_options.get(queue)) is not None:
            path = ("queue_options", queue)
            standings.append(RankedLayer("queue_options", "queue_extra", options.as_layer(), path))
        standings += self._of_route(activity_name, routing_key)
        if call_site is not None:
            standings.append(RankedLayer(CALL_SITE, CALL_SITE, call_site))
        return standings

    def _of_route(self, activity_name: str, routing_key: str | None) -> Iterator[RankedLayer]:
        route = self.activity_queues.get(activity_name)
        if route is None:
            return
        at = ("worker_config", "activity_queues", activity_name)
        if route.options is not None:
            layer = route.options.as_layer()
            yield RankedLayer("activity_options", "activity_extra", layer, (*at, "options"))
        if (found := route.options_for(routing_key)) is not None:
            handle, place = found
            yield RankedLayer(place[0], "handle_extra", handle.as_layer(), (*at, *place))

    def baseline(self) -> Layer:
        return Layer(
            start_to_close_timeout=self.default_activity_start_to_close_timeout,
            heartbeat_timeout=self.default_activity_heartbeat_timeout,
            retry=self.retry_policy_config.as_overlay(),
        )

    def all_non_retryable_error_types(
        self, queue_options: Mapping[str, QueueOptions] | None = None
    ) -> frozenset[str]:
        """Every name that any layer of the file does not retry."""
        names = set(self.retry_policy_config.non_retryable_error_types)
        overlays = [options.retry_policy_config for options in (queue_options or {}).values()]
        for route in self.activity_queues.values():
            overlays += [route.options.retry_policy_config] if route.options else []
            overlays += [options.retry_policy_config for options in route.handle_options.values()]
            overlays += [each.options.retry_policy_config for each in route.handle_options_by_pattern]
        return frozenset(names.union(*(each.non_retryable_error_types_extra for each in overlays if each)))
