"""cocotb module that runs kernels on the behavioural SM, one after the other."""

import gc
import time
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import cocotb
from cocotb.triggers import gather, select

from sim_tb.simulator import jobs
from sim_tb.sm.costs import GLOBAL_PATH, Costs
from sim_tb.sm.device import Device
from sim_tb.sm.diagnosis import is_at_work, ledger
from sim_tb.sm.errors import KernelError, kernel_code, python_error
from sim_tb.sm.kernel import Block, Kernel
from sim_tb.sm.pipes import REGISTERS
from sim_tb.sm.record import LOGS, Record, RequestRecord, Setting, SmRecord
from sim_tb.sm.sanitizer import Sanitizer
from sim_tb.sm.schedule import scheduled
from sim_tb.sm.sm import SM, ClusterRun
from sim_tb.sm.smem import LANES, PIECE_BYTES, SmemLayout
from sim_tb.sm.warps import WARPGROUP_WARPS, Role, Warpgroup, Warps, warps_of
from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.cluster_environment import ClusterEnvironment
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.models import surroundings
from sim_tb.trace.records import joined

WATCH_INTERVAL = 1024
"""Clocks from one look of the watchdog to the next."""

WAKE_CLOCKS = 4
"""Clocks in which roles that have woken up move on."""

QUIET_CLOCKS = 128
"""Clocks without a transfer after which the units are asked whether anything can still move."""

DRAIN_CLOCKS = 10_000
"""Clocks that a unit gets to finish its requests after a run that ended early."""

MOST_REGISTERS = 168
"""Most registers per thread at the launch, before ``setmaxnreg``: as compilers choose them."""


@cocotb.test()
async def kernels(dut: Any) -> None:
    """Run the jobs, up to the first that leaves requests stuck in the unit.

    A reset does not clear the counts in the memories of the unit, so a new simulation is needed
    then.
    """
    gc.freeze()  # existing objects stay until the end: the collector need not visit them
    gc.disable()  # collect between two kernels only
    with jobs.Results() as results:
        for kernel, setting in jobs.given():
            record = await run_kernel(dut, kernel, setting)
            results.put(record)
            gc.collect()
            if record.dirty:
                break


async def run_kernel(dut: Any, kernel: Kernel, setting: Setting) -> Record:
    """Reset the units and run a kernel; return the record."""
    envs = await _environments(dut, kernel, setting)
    device = Device(envs[0].gmem, kernel.arch, kernel.given_inputs)
    layout = SmemLayout(envs[0].interface.parameters["smem_bytes"])
    sanitizer = Sanitizer(layout, layout.limit, len(envs), device, kernel.ctas)
    models = surroundings(setting.memory)
    latency = (models.lines.low + models.lines.high) / 2
    costs = Costs(setting.issue_interval, global_load=round(latency) + GLOBAL_PATH)
    cluster = ClusterRun(kernel.ctas, kernel.grid_dim)
    has_counters = bool(envs[0].interface.parameters["counters"])
    sms = [SM(env, device, layout, sanitizer, costs, cluster, setting.schedule) for env in envs]
    error, check, flops, start = "", None, 0, time.perf_counter()
    watchdogs = [
        cocotb.start_soon(watch) for watch in (_watch(sms, setting.watchdog), _find_deadlock(sms))
    ]
    try:
        with kernel_code("host"):
            kernel.host(device)
        with kernel_code("smem"):
            kernel.smem(layout)
        with kernel_code("flops"):
            flops = kernel.flops
        start = time.perf_counter()
        await _run_grid(kernel, sms)
        cycles = envs[0].cycle
        seconds = time.perf_counter() - start
        await envs[0].idle()
        _check_refusals(sms)
        with kernel_code("check"):
            check = kernel.check()
        device.check_guards()
    except CheckError as failure:
        cycles, seconds, error = envs[0].cycle, time.perf_counter() - start, str(failure)
    for watchdog in watchdogs:
        watchdog.cancel()
    models = scheduled(surroundings(setting.memory), setting.schedule)
    record = Record(
        kernel=kernel.name,
        summary=(type(kernel).__doc__ or "").partition("\n")[0],
        options={},  # `launch.simulate` has them: their types may be unknown here
        setting=setting,
        latency=latency,
        cycles=cycles,
        seconds=seconds,
        check="" if check is None else str(check),
        wrong=check is not None and bool(check.wrong),
        error=error,
        dirty=False,
        flops=flops,
        smem_bytes=layout.bytes,
        sms=[_sm_record(sm) for sm in sms],
        requests=[
            RequestRecord(r.text, r.cta, r.role, r.cycle, r.done, r.tx_bytes)
            for r in cluster.requests
        ],
        rings=layout.rings,
        outputs={} if kernel.given_inputs is None or error else device.arrays(),
    )
    if not error:
        return replace(record, sms=await _counted(sms, record.sms)) if has_counters else record
    return replace(record.until_failure(), dirty=not await _drain(sms))


async def _environments(dut: Any, kernel: Kernel, setting: Setting) -> list[Environment]:
    """Reset the units; return the environment of each SM."""
    models = scheduled(surroundings(setting.memory), setting.schedule)
    given: dict[str, Any] = {
        "seed": setting.schedule,
        "background": "fault",
        "logs": [*LOGS.values(), LogKind.EVENT],
    }
    if kernel.sms == 1:
        return [await Environment.start(dut, models, **given)]
    return (await ClusterEnvironment.start(dut, models, **given)).sms


async def _run_grid(kernel: Kernel, sms: Sequence[SM]) -> None:
    """Run all CTAs of the grid: each cluster on SMs that are free, in the order of the grid.

    Raises
    ------
    CheckError
        The first failure. All coroutines are cancelled then.
    """
    with kernel_code("roles"):
        roles = kernel.roles()
    clusters = sms[0].cluster.unstarted = deque(kernel.clusters())
    groups = (sms[first : first + kernel.ctas] for first in range(0, len(sms), kernel.ctas))
    grid = _together([_run_clusters(kernel, roles, group, clusters) for group in groups])
    task = cocotb.start_soon(grid)
    try:
        await select(task, sms[0].cluster.failed.wait())
    finally:
        task.cancel()
    if sms[0].cluster.error is not None:
        raise sms[0].cluster.error
    sms[0].sanitizer.end_kernel()


async def _together(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines at the same time until all have returned, or this one is cancelled."""
    tasks = [cocotb.start_soon(each) for each in coroutines]
    try:
        await gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _run_clusters(
    kernel: Kernel, roles: Mapping[str, Role], sms: Sequence[SM], clusters: deque[list[Block]]
) -> None:
    """Run clusters on these SMs, one after the other, as long as there are any."""
    run = sms[0].cluster
    while clusters and run.error is None:
        ctas = []
        for sm, block in zip(sms, clusters.popleft(), strict=True):
            sm.begin_cta(block)
            prologue = Warpgroup(sm, "prologue", WARPGROUP_WARPS)
            ctas.append(_run_cta(kernel, roles, sm, prologue))
        await _together(ctas)
        if clusters and run.error is None:
            for sm in sms:
                sm.sanitizer.end_cta(sm.cta)


async def _run_cta(kernel: Kernel, roles: Mapping[str, Role], sm: SM, prologue: Warpgroup) -> None:
    """Run the prologue of a CTA, then all roles at the same time until all have returned."""
    await _role(kernel.prologue, prologue)
    if sm.cluster.error is not None:
        return
    sm.warpgroups.remove(prologue)
    threads = sum(map(warps_of, roles.values())) * LANES
    registers = min(MOST_REGISTERS, REGISTERS // max(1, threads) & ~7)
    started = [(role, _warps(sm, name, role)) for name, role in roles.items()]
    for _, wg in started:
        wg.registers = registers
    sm.sanitizer.begin_roles(sm.cta)

    async def run(role: Role, wg: Warpgroup) -> None:
        await _role(role, wg)
        sm.cluster.check()  # not behind the prologue: its threads have become those of the roles

    await _together([run(role, wg) for role, wg in started])


def _warps(sm: SM, name: str, role: Role) -> Warpgroup:
    """Start the warps of a role on an SM."""
    number = warps_of(role)
    if number == WARPGROUP_WARPS:
        return Warpgroup(sm, name, number)
    return cast(Warpgroup, Warps(sm, name, number))


async def _role(role: Role, wg: Warpgroup) -> None:
    """Run a role; its failure ends the run."""
    try:
        await role(wg)
        await wg.sm.until(wg.ready_cycle)
        wg.sm.sanitizer.exit_warpgroup(wg.tracked, wg.sm.env.cycle)
    except CheckError as error:
        wg.sm.cluster.fail(error)
    except Exception as error:
        first, last = wg.thread // LANES, wg.thread // LANES + wg.warps - 1
        warps = f"warp {first}" if first == last else f"warps {first} to {last}"
        place = f"{wg.tracked.label} ({warps}), cycle {wg.sm.env.cycle}"
        wg.sm.cluster.fail(python_error(place, error))


def _begun(sms: Sequence[SM]) -> tuple[int, int]:
    """Return how many events the sanitizer has followed, and how many timers roles have begun."""
    return sms[0].sanitizer.progress, sum(sm.env.timers_begun for sm in sms)


async def _find_deadlock(sms: Sequence[SM]) -> None:
    """Fail the run when nothing can move any more.

    That is so if no request and no barrier operation is on its way, no unit owes anything, no role
    waits for time to pass, and a role has not returned.
    """
    env, sanitizer = sms[0].env, sms[0].sanitizer
    while True:
        await env.idle(QUIET_CLOCKS, None)
        moves = any(sm.env.timers for sm in sms) or is_at_work(sms)
        if not moves:  # look again when roles that woke up in this clock have moved on
            begun, start = _begun(sms), env.cycle
            await env.cycles(WAKE_CLOCKS, watches=True)
            await env.idle(QUIET_CLOCKS, None)
            moves = env.cycle > start + 2 * WAKE_CLOCKS or _begun(sms) != begun
        if not moves and any(not each.has_exited for each in sanitizer.warpgroups):
            try:
                _check_refusals(sms)
                text = f"cycle {env.cycle}: the kernel hangs: nothing can move any more"
                sms[0].cluster.fail(KernelError(f"{text}\n{ledger(sms)}"))
            except CheckError as error:
                sms[0].cluster.fail(error)
            return
        await env.cycles(WATCH_INTERVAL, watches=True)


async def _watch(sms: Sequence[SM], patience: int) -> None:
    """Fail the run after ``patience`` clocks without progress, or when a request is refused."""
    env, sanitizer = sms[0].env, sms[0].sanitizer
    progress, last_progress_cycle = sanitizer.progress, env.cycle
    while True:
        await env.cycles(min(WATCH_INTERVAL, patience), watches=True)
        try:
            _check_refusals(sms)
        except CheckError as error:
            sms[0].cluster.fail(error)
        if sanitizer.progress != progress:
            progress, last_progress_cycle = sanitizer.progress, env.cycle
        elif env.cycle - last_progress_cycle >= patience:
            text = (
                f"cycle {env.cycle}: the kernel hangs: no progress since cycle "
                f"{last_progress_cycle}\n{ledger(sms)}"
            )
            sms[0].cluster.fail(KernelError(text))


async def _drain(sms: Sequence[SM]) -> bool:
    """Let the units finish their requests; return whether all did.

    Only then can they be reset: a reset does not clear their memories.
    """
    try:
        for sm in sms:
            await sm.env.idle(timeout=DRAIN_CLOCKS)
            for wg in sm.warpgroups:
                sm.env.requests.commit_group(wg.thread)
                await sm.env.requests.wait_group(0, thread=wg.thread, timeout=DRAIN_CLOCKS)
    except CheckError:
        return False
    return True


def _check_refusals(sms: Sequence[SM]) -> None:
    """Check that no unit has refused a request.

    Raises
    ------
    KernelError
        If one has. The text names request, cause, dimension and value of the error record.
    """
    for sm in sms:
        for record in sm.env.errors:
            requests = {each.number: each for each in sm.sanitizer.in_flight if each.cta == sm.cta}
            request = requests.get(record.request_id, f"request {record.request_id}")
            raise KernelError(
                f"the unit refused {request}: {record.cause}, dimension {record.dim}, value "
                f"{record.value:#x}; docs/errors.md explains the causes"
            )


async def _counted(sms: Sequence[SM], records: Sequence[SmRecord]) -> list[SmRecord]:
    """Return the records of all SMs with the counts and the events of their units."""
    counts = await sms[0].env.shared.counters.read()
    counted = []
    for sm, record, of_sm in zip(sms, records, counts, strict=True):
        events = sm.env.log(LogKind.EVENT)
        trace = joined(zip(events["key"], events["value"], strict=True))
        counted.append(replace(record, counts=of_sm, trace=trace))
    return counted


def _sm_record(sm: SM) -> SmRecord:
    logs = {name: sm.env.log(kind) for name, kind in LOGS.items()}
    stamps: dict[str, Any] = {name: log["cycle"] for name, log in logs.items()}
    return SmRecord(
        spans=sm.spans,
        tensor_cores=list(sm.tensor_cores.busy),
        scheduler=list(sm.scheduler.busy),
        smem_port=list(sm.smem_port.busy),
        mufu=list(sm.mufu.busy),
        phase_completions=list(sm.counters.phase_completions),
        waits=sm.counters.waits,
        load_bytes=sm.load_bytes,
        store_bytes=int(logs["lines_written"]["value"].sum()) * PIECE_BYTES,
        fma=sm.counters.fma,
        bank_conflicts=sm.counters.bank_conflicts,
        **stamps,
    )
