"""Arms a fail point in a child process of a test, when its interpreter starts; :mod:`failpoint` puts it there."""

import os

from archec.store.failpoints import arm

_name, _, _times = os.environ["ARCHEC_TEST_FAILPOINT"].partition(":")
arm(_name, int(_times or 1))
