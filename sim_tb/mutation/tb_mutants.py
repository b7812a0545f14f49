"""cocotb module: runs tests on mutants, each test on each mutant in a process of its own.

The processes fork off in front of the first clock. So what a simulation does until then, such as
loading modules, is done once. ``sim_tb.mutation.suites`` starts it.

The environment variable ``MUTANTS_PLAN`` names a file of the trials, ``{"test": "module:name",
"mutants": [3, 5], "limit": 1000}`` each: a test, the mutants that it runs on, and the clocks that
each of them has. A mutant that a trial killed is in no later trial. The ends of all processes come
to the file's folder, in ``ends.json``.
"""

import ctypes
import json
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import cocotb
from cocotb.handle import Immediate
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

PLAN = "MUTANTS_PLAN"
ENDS = "ends.json"
CLOCK_NS = 2
"""Period of the testbench's clock, in nanoseconds."""

PASSED, FAILED = 100, 101
"""Exit status of a process. One that cocotb or the simulator ends has another one."""


@cocotb.test()
async def mutants(dut: Any) -> None:
    """Carry out the plan."""
    path = Path(os.environ[PLAN])
    trials = json.loads(path.read_text())
    output = path.with_name("output.txt")
    for trial in trials:  # load the modules
        import_module(trial["test"].partition(":")[0])
    await Timer(1, "step")  # the design's initial blocks come first: they set the registers
    ends: list[dict[str, Any]] = []
    killed: set[int] = set()
    for trial in trials:
        for number in (each for each in trial["mutants"] if each not in killed):
            began = time.monotonic()
            if (child := os.fork()) == 0:
                await _run(dut, trial["test"], number, trial["limit"], output)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status != PASSED:
                killed.add(number)
            ends.append(
                {
                    "test": trial["test"],
                    "mutant": number,
                    "passed": status == PASSED,
                    "crashed": status < 0,
                    "seconds": time.monotonic() - began,
                    "output": output.read_text(errors="replace"),
                }
            )
    path.with_name(ENDS).write_text(json.dumps(ends))


async def _run(dut: Any, test: str, number: int, limit: int, output: Path) -> NoReturn:
    """Run a test on a mutant in this process, which ends with it.

    If a task of the test fails, cocotb ends this coroutine and then the process.
    """
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in sys.stdout, sys.stderr:
        stream.flush()
        os.dup2(file, stream.fileno())
    dut.dut.mutant.value = Immediate(number)
    dut.dut.mutant_limit.value = Immediate(limit)
    module, _, name = test.partition(":")
    try:
        await getattr(import_module(module), name).func(dut)
    except BaseException:
        traceback.print_exc()
        _end(FAILED)
    print(f"clocks {round(get_sim_time('ns')) // CLOCK_NS}")
    _end(PASSED)


def _end(status: int) -> NoReturn:
    """End this process at once, but write what it, or the simulator, has printed."""
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(status)
