"""Public module for activity code: `from penstock import activity`, or `import penstock.activity`.

The module object is `penstock.sdk.activity` itself.
"""

import sys

from penstock.sdk import activity
from penstock.sdk.activity import *  # noqa: F403 - the names, for type checkers

sys.modules[__name__] = activity
