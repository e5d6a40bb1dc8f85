"""Tests, from plain values at the bottom to Apache RocketMQ itself at the top (`interop`)."""

import pytest

# A failed assertion of `tests.support` shows what it compared, as in the tests themselves.
pytest.register_assert_rewrite("tests.support")
