"""Simulated tests that fail or crash, for tests of the runner."""

import os
from typing import Any

import cocotb
from cocotb.triggers import Timer


@cocotb.test()
async def fails(_: Any) -> None:
    await Timer(1, "ns")
    raise AssertionError("on purpose")


@cocotb.test()
async def crashes(_: Any) -> None:
    os._exit(3)
