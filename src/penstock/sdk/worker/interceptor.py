"""The base class of interceptors of workers."""

from __future__ import annotations

from penstock.sdk.activities.interceptors import ActivityInboundInterceptor
from penstock.sdk.replay.interceptors import WorkflowInboundInterceptor, WorkflowInterceptorClassInput


class Interceptor:
    """Adds links to the chains of activities and workflows. The first interceptor of a worker is the outermost.

    Deriving from it is not required: any object with one of these methods is an interceptor.
    """

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """Return a link around activities that calls `next`.

        Args:
            next: the next link.
        """
        return next

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002
    ) -> type[WorkflowInboundInterceptor] | None:
        """Return the class of the links around workflows, which takes the next link; None adds none.

        Args:
            input: has no fields yet.
        """
        return None
