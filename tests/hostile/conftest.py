"""What the hostile tests share."""

from __future__ import annotations

import pytest


@pytest.fixture
def scratch(tmp_path_factory):
    """A folder beside the one that is looked at afterwards."""
    return tmp_path_factory.mktemp("scratch")
