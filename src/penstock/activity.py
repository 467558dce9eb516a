"""What activities are written with: `from penstock import activity`, or `import penstock.activity`.

The module object is `penstock.sdk.activity` itself, under its public name.
"""

import sys

from penstock.sdk import activity
from penstock.sdk.activity import *  # noqa: F403 - the names, for type checkers

sys.modules[__name__] = activity
