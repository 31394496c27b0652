"""Recordings: a failed comparison of the helpers shows its values, as one of a test does."""

import pytest

pytest.register_assert_rewrite("_replay")
