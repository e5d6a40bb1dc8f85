"""The scripted servers of the blocking face's tests: they run in a thread of their own here too."""

from tests.blocking.conftest import server_loop, stage

__all__ = ["server_loop", "stage"]
