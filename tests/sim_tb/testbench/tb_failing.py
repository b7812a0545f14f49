"""Simulated tests that fail or crash, for tests of the runner."""

import os
from typing import Any

import cocotb
from cocotb.triggers import Timer

from tests.sim_tb.testbench.stand_in import Fault
from tests.sim_tb.testbench.tb_stand_in import start, submit


@cocotb.test()
async def fails(_: Any) -> None:
    await Timer(1, "ns")
    raise AssertionError("on purpose")


@cocotb.test()
async def crashes(_: Any) -> None:
    os._exit(3)


@cocotb.test()
async def breaks_an_assertion(dut: Any) -> None:
    env = await start(dut)
    submit(env, Fault.BREAKS_ASSERTION.value)
    await env.idle()
