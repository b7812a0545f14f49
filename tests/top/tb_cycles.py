"""cocotb module: bursts take exactly the clocks that ``cycles.json`` says; see ``cycles``."""

import json
import os
from dataclasses import astuple
from typing import Any

import cocotb

from hw.params import WARP
from sim_tb.performance.tb_timing import LOGS, TensorMaps, run_burst
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.models import PRESETS
from tests.top.cycles import FILE, WRITE, bursts


@cocotb.test()
async def bursts_take_their_clocks(dut: Any) -> None:
    """Issue each burst, and compare its ``BurstTimes``."""
    env = await Environment.start(dut, PRESETS["near"], background="void", logs=LOGS)
    writes = WRITE in os.environ
    expected = {} if writes else json.loads(FILE.read_text())
    counted: dict[str, list[int]] = {}
    memory = ""
    for name, burst in bursts().items():
        if memory != (memory := name.partition(":")[0]):
            await env.reset(PRESETS[memory], background="void", logs=LOGS)
        with TensorMaps(env) as maps:
            threads = [WARP * stream for stream in burst.streams]
            counted[name] = [*astuple(await run_burst(env, maps, burst.boxes, threads))]
    if writes:
        rows = ",\n".join(f"{json.dumps(name)}: {numbers}" for name, numbers in counted.items())
        FILE.write_text(f"{{\n{rows}\n}}\n")
        return
    names = dict.fromkeys([*expected, *counted])
    differ = [name for name in names if counted.get(name) != expected.get(name)]
    assert not differ, "\n".join(
        f"{name}: {counted.get(name)}, not {expected.get(name)}" for name in differ
    )
