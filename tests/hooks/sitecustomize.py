"""What a test wants of a child process, done when its interpreter starts: a fail point is armed (:mod:`failpoint`), the
clock is another one."""

import os
import signal
import time

if "ARCHEC_TEST_CLOCK" in os.environ:
    _real, _ahead = time.time, float(os.environ["ARCHEC_TEST_CLOCK"])
    time.time = lambda: _real() + _ahead

if "ARCHEC_TEST_FAILPOINT" in os.environ:
    from archec.store.durable import arm

    _name, _times, _signal = (os.environ["ARCHEC_TEST_FAILPOINT"] + "::").split(":")[:3]
    arm(_name, int(_times or 1), int(_signal or signal.SIGKILL))
