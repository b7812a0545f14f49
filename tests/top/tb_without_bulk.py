"""A simulated test of units without bulk copies."""

from typing import Any

import cocotb

from golden import ErrorCode
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.models import PRESETS

SOURCE, TARGET, BARRIER = 0x10_0000, 0x400, 0x40


@cocotb.test()
async def refuses_bulk_copies(dut: Any) -> None:
    env = await Environment.start(dut, PRESETS["fixed"], background="fault")
    env.smem[:] = 0xCD
    assert not env.interface.parameters["bulk"]
    names = [env.requests.bulk_load(SOURCE, TARGET, size, BARRIER) for size in (16, 24)]
    names.append(env.requests.bulk_prefetch(SOURCE, 4096))
    for name, operation in zip(names, ("BULK_LOAD", "BULK_LOAD", "BULK_PREFETCH"), strict=True):
        error = await env.errors.take_next()
        value = env.interface.enums["Operation"][operation]
        assert (error.request_id, error.code, error.value) == (name, ErrorCode.MAP_MODE, value)
    await env.idle()
    assert (env.smem == 0xCD).all()
