"""Builds simulators before the tests that need them, and shares out the tests among workers."""

import pytest

from tests.workload import Workload


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Workload(config))
