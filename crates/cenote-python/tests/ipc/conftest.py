"""Fixtures for tests of topics."""

import cenote
import pytest


@pytest.fixture
def topic(name):
    with cenote.Topic(name, cenote.Image) as topic:
        topic.subscribe()
        yield topic
