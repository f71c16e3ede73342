"""Fixtures of the tests of gathering."""

from gather_fixtures import memory_folder as memory_folder
