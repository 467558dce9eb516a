"""Public module for workflow code: `from penstock import workflow`, or `import penstock.workflow`.

The module object is `penstock.sdk.workflow` itself.
"""

import sys

from penstock.sdk import workflow
from penstock.sdk.workflow import *  # noqa: F403 - the names, for type checkers

sys.modules[__name__] = workflow
