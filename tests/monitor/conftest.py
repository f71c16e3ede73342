"""Fixtures of the tests of monitoring, which share what the tests of gathering have."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "gather"))

from gather_fixtures import demo as demo
from gather_fixtures import memory_folder as memory_folder
