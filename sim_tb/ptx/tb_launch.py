"""cocotb module that runs launches of PTX kernels on the simulated unit, one after another."""

import gc
import time
from dataclasses import replace
from typing import Any

import cocotb

from sim_tb.ptx.engine import TIME_LIMIT
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.grid import GridRun
from sim_tb.ptx.kernel import Kernels
from sim_tb.ptx.launch import Launch, Result, result_of
from sim_tb.ptx.machine import PARAM_WINDOW, Activity
from sim_tb.ptx.unit import UnitSlot
from sim_tb.simulator import jobs
from sim_tb.sm.costs import GLOBAL_PATH, Costs
from sim_tb.sm.record import LOGS, Record, Setting, SmRecord
from sim_tb.sm.schedule import scheduled
from sim_tb.sm.smem import PIECE_BYTES
from sim_tb.testbench.cluster_environment import ClusterEnvironment
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.models import surroundings

LEAD = 64
"""Clocks that warps may run ahead of the simulation, so that Python runs less often."""

WATCH_CLOCKS = 2 * TIME_LIMIT
"""Clocks without any event after which threads that wait are in a deadlock."""

DRAIN_CLOCKS = 10_000
"""Clocks that a unit gets to finish its requests after a launch that ended early."""


@cocotb.test()
async def launches(dut: Any) -> None:
    """Run the launches, up to the first that leaves requests stuck in the unit."""
    gc.freeze()  # existing objects stay until the end: the collector need not visit them
    with jobs.Results() as results:
        for launch, setting in jobs.given():
            result = await run_launch(dut, launch, setting)
            results.put(result)
            if result.dirty:
                break


async def run_launch(dut: Any, launch: Launch, setting: Setting) -> Result:
    """Reset the units and run a launch; return its result."""
    start = time.perf_counter()
    envs = await _environments(dut, setting, launch)
    kernel = Kernels(launch.text).kernel(launch.entry)
    state = launch.state(kernel)
    models = surroundings(setting.memory)
    latency = (models.lines.low + models.lines.high) / 2
    state.costs = Costs(setting.issue_interval, global_load=round(latency) + GLOBAL_PATH)
    gmem = envs[0].gmem
    for address, data in launch.allocations:
        if data.size:
            gmem.place(address, state.memory.at(address, data.size))
    if kernel.data:
        gmem.place(state.variables, state.memory.at(state.variables, len(kernel.data)))
    if state.parameters.size:
        gmem.place(PARAM_WINDOW, state.parameters)
    size = launch.ctas // launch.clusters
    slots = [UnitSlot(state, envs[first : first + size]) for first in range(0, launch.ctas, size)]
    run = GridRun(kernel, state, slots, kernel.shared_bytes + launch.smem)
    failure: Exception | None = None
    try:
        await _run(run, slots, envs[0])
    except (PtxError, CheckError) as error:
        failure, state.now = error, envs[0].cycle
    seconds = time.perf_counter() - start
    record = (
        _record(launch, setting, latency, seconds, run, envs, failure) if launch.records else None
    )
    if failure is not None:
        dirty = not await _drain(envs)
        return Result([], state.instructions, state.now, seconds, failure, record, dirty)
    return replace(result_of(state, launch, seconds), record=record)


def _record(
    launch: Launch, setting: Setting, latency: float, seconds: float, run: GridRun,
    envs: list[Environment], failure: Exception | None,
) -> Record:  # fmt: skip
    """Return the record of a launch, for the report."""
    sms = [_sm_record(env, activity) for env, activity in zip(envs, run.activities, strict=True)]
    sizes = {"grid": launch.grid, "block": launch.block, "cluster": launch.cluster or (1, 1, 1)}
    return Record(
        kernel=launch.entry,
        summary="PTX kernel on the behavioural SM, through the simulated unit",
        options={name: "x".join(map(str, size)) for name, size in sizes.items()},
        setting=setting,
        latency=latency,
        cycles=run.state.now,
        seconds=seconds,
        check="",
        wrong=False,
        error="" if failure is None else str(failure),
        dirty=False,
        flops=2 * sum(sm.fma for sm in sms),
        smem_bytes=launch.smem,
        sms=sms,
    )


def _sm_record(env: Environment, activity: Activity) -> SmRecord:
    logs = {name: env.log(kind) for name, kind in LOGS.items()}
    stamps: dict[str, Any] = {name: log["cycle"] for name, log in logs.items()}
    return SmRecord(
        spans=activity.spans,
        tensor_cores=activity.products,
        scheduler=[],
        smem_port=[],
        mufu=[],
        phase_completions=[],
        waits=[],
        load_bytes=0,
        store_bytes=int(logs["lines_written"]["value"].sum()) * PIECE_BYTES,
        fma=activity.fma,
        bank_conflicts=activity.bank_conflicts,
        **stamps,
    )


async def _environments(dut: Any, setting: Setting, launch: Launch) -> list[Environment]:
    """Reset the units; return the environment of each SM."""
    models = scheduled(surroundings(setting.memory), setting.schedule)
    given: dict[str, Any] = {"seed": setting.schedule, "background": "fault"}
    given["logs"] = list(LOGS.values()) if launch.records else ()
    if launch.ctas == 1:
        return [await Environment.start(dut, models, **given)]
    return (await ClusterEnvironment.start(dut, models, **given)).sms


async def _run(run: GridRun, slots: list[UnitSlot], env: Environment) -> None:
    """Run all blocks, and let the units finish.

    Raises
    ------
    PtxError
        If a thread makes a mistake, or threads wait for each other forever.
    CheckError
        If a unit is wrong.
    """
    state, events, watched = run.state, -1, 0
    while True:
        at = run.run(env.cycle + LEAD)
        if not run.is_running:
            break
        await env.pause(WATCH_CLOCKS if at is None else max(1, at - LEAD // 2 - env.cycle))
        for slot in slots:
            slot.check()
        if state.events != events:
            events, watched = state.events, env.cycle
        elif env.cycle - watched > WATCH_CLOCKS and at is None:
            run.raise_deadlock()
    await env.idle()
    for slot in slots:
        slot.check()
    state.observer.end_grid()
    state.now = env.cycle


async def _drain(envs: list[Environment]) -> bool:
    """Let the units finish their requests; return whether all did."""
    try:
        for env in envs:
            await env.idle(timeout=DRAIN_CLOCKS)
    except CheckError:
        return False
    return True
