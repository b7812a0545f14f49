"""Runs kernels: ``run`` outside of the simulator, the rest inside."""

import gc
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any

import cocotb
from cocotb.task import Task
from cocotb.triggers import gather, select

from golden import Arch
from hw.params import PRESETS, TmaParams
from sim_tb.simulator import jobs
from sim_tb.sm.device import Device
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.pipes import REGISTERS, WARPGROUP_THREADS, Issue
from sim_tb.sm.record import Record, RequestRecord, Setting, SmRecord
from sim_tb.sm.sanitizer import KernelError, Sanitizer
from sim_tb.sm.sm import SM, Cluster, Role, Warp
from sim_tb.sm.smem import PIECE_BYTES, SmemLayout
from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.cluster_environment import ClusterEnvironment
from sim_tb.testbench.environment import Environment
from sim_tb.testbench.errors import CheckError
from sim_tb.testbench.models import surroundings

LOOK = 1024
"""Clocks between two looks of the watchdog."""

DRAIN = 10_000
"""Clocks in which a unit whose run broke off must come to rest."""

MOST_REGISTERS = 168
"""Of a thread at the launch, as compilers like it."""

LOGS = {
    "lines_read": LogKind.LINE,
    "beats_written": LogKind.BEAT,
    "beats_read": LogKind.READ,
    "lines_written": LogKind.STORE,
}

ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""Tiles are too small for more: threads that wait for each other take longer."""

Job = tuple[Kernel, Setting]


def validate(kernel: Kernel, setting: Setting, params: TmaParams = PRESETS["default"]) -> None:
    """See that a kernel can be run.

    Raises
    ------
    ValueError
        If an option or setting is out of its limits.
    SmemError
        If the kernel's shared memory does not fit.
    """
    kernel.validate()
    setting.validate()
    kernel.smem(SmemLayout(unit_of(kernel, params).smem_bytes))


def run(work: Sequence[Job], params: TmaParams = PRESETS["default"]) -> Iterator[Record]:
    """Run kernels one after the other; yield each one's record when it is done.

    Parameters
    ----------
    work : sequence
        Of kernels and what surrounds them.
    params : TmaParams
        Of each unit, but for what the kernel asks for: number of CTAs, features.

    Raises
    ------
    ValueError
        If an option or setting is out of its limits.
    SmemError
        If a kernel's shared memory does not fit.
    SimulationError
        If the simulation breaks off. A kernel's own failure is in its record.
    """
    for kernel, setting in work:
        validate(kernel, setting, params)
    for unit, group in groupby(work, lambda job: unit_of(job[0], params)):
        left = deque(group)
        while left:
            results = jobs.results("sim_tb.sm.launch", list(left), env=ENVIRONMENT, params=unit)
            with closing(results):
                for record in results:
                    left.popleft()
                    yield record
                    if record.dirty:
                        break  # the next one needs a unit that has just been switched on


def unit_of(kernel: Kernel, params: TmaParams) -> TmaParams:
    """The parameters with what the kernel asks for."""
    return replace(params, ctas=kernel.ctas, **kernel.unit)


@cocotb.test()
async def kernels(dut: Any) -> None:
    """Run the jobs, up to the first that breaks off: requests in flight outlast a reset, as counts
    in memories of the unit.
    """
    gc.freeze()  # what is there now stays: the collector need not look at it again and again
    gc.disable()  # and no more often than between two kernels
    with jobs.Results() as results:
        for kernel, setting in jobs.given():
            record = await launch(dut, kernel, setting)
            results.put(record)
            gc.collect()
            if record.dirty:
                break


async def launch(dut: Any, kernel: Kernel, setting: Setting) -> Record:
    """Run a kernel from reset on."""
    envs = await _environments(dut, kernel, setting)
    device = Device(envs[0].gmem, Arch.SM_100A if kernel.unit else Arch.SM_90A)
    layout = SmemLayout(envs[0].interface.parameters["smem_bytes"])
    kernel.host(device)
    kernel.smem(layout)
    sanitizer = Sanitizer(layout, layout.limit, len(envs))
    timing, cluster = Issue(interval=setting.issue_interval), Cluster(len(envs))
    sms = [SM(env, device, layout, sanitizer, timing, cluster) for env in envs]
    began, error, check = time.perf_counter(), "", None
    watchdog = cocotb.start_soon(_watch(sms, setting.watchdog))
    try:
        await _run(kernel, sms)
        cycles = envs[0].cycle
        seconds = time.perf_counter() - began
        await envs[0].idle()
        _refused(sms)
        check = kernel.check()
        device.check_guards()
    except CheckError as failure:
        cycles, seconds, error = envs[0].cycle, time.perf_counter() - began, str(failure)
    watchdog.cancel()
    dirty = bool(error) and not await _drained(sms)
    models = surroundings(setting.memory)
    return Record(
        kernel=kernel.name,
        summary=(type(kernel).__doc__ or "").partition("\n")[0],
        options=asdict(kernel),
        setting=setting,
        latency=(models.lines.low + models.lines.high) / 2,
        cycles=cycles,
        seconds=seconds,
        check="" if check is None else str(check),
        wrong=check is not None and bool(check.wrong),
        error=error,
        dirty=dirty,
        flops=kernel.flops,
        smem_bytes=layout.bytes,
        sms=[_record(sm) for sm in sms],
        requests=[
            RequestRecord(r.text, r.cta, r.role, r.cycle, r.done, r.tx_bytes)
            for r in sanitizer.requests
        ],
        rings=layout.rings,
    )


async def _environments(dut: Any, kernel: Kernel, setting: Setting) -> list[Environment]:
    models, logs = surroundings(setting.memory), list(LOGS.values())
    if kernel.ctas == 1:
        return [await Environment.start(dut, models, background="fault", logs=logs)]
    return (await ClusterEnvironment.start(dut, models, background="fault", logs=logs)).sms


async def _run(kernel: Kernel, sms: Sequence[SM]) -> None:
    """The prologue of all CTAs, then all warps until all are done."""
    roles = kernel.warps()
    tasks: list[Task[None]] = []
    try:
        tasks = [cocotb.start_soon(_coroutine(kernel.prologue, sm.warp("prologue"))) for sm in sms]
        await _all(tasks, sms[0].cluster)
        warps = [(role, sm.warp(name)) for sm in sms for name, role in roles.items()]
        registers = min(MOST_REGISTERS, REGISTERS // WARPGROUP_THREADS // max(1, len(roles)) & ~7)
        for _, warp in warps:
            warp.registers = registers
        sanitizer = sms[0].sanitizer
        sanitizer.sync(sanitizer.threads)
        tasks = [cocotb.start_soon(_coroutine(role, warp)) for role, warp in warps]
        await _all(tasks, sms[0].cluster)
        sanitizer.ended()
    finally:
        for task in tasks:
            task.cancel()


async def _coroutine(role: Role, warp: Warp) -> None:
    try:
        await role(warp)
        await warp.sm.until(warp.ready)
        warp.sm.sanitizer.exits(warp.watched)
    except CheckError as error:
        warp.sm.cluster.fail(error)


async def _all(tasks: Sequence[Task[None]], cluster: Cluster) -> None:
    """Wait until all are done, or something fails."""
    await select(gather(*tasks), cluster.failed.wait())
    if cluster.error is not None:
        raise cluster.error


async def _watch(sms: Sequence[SM], patience: int) -> None:
    """End a run in which nothing happens any more, or whose request was refused."""
    env, sanitizer = sms[0].env, sms[0].sanitizer
    progress, since = sanitizer.progress, env.cycle
    while True:
        await env.cycles(min(LOOK, patience))
        try:
            _refused(sms)
        except CheckError as error:
            sms[0].cluster.fail(error)
        if sanitizer.progress != progress:
            progress, since = sanitizer.progress, env.cycle
        elif env.cycle - since >= patience:
            text = f"cycle {env.cycle}: nothing has happened since cycle {since}\n{ledger(sms)}"
            sms[0].cluster.fail(KernelError(text))


async def _drained(sms: Sequence[SM]) -> bool:
    """Whether a unit whose run broke off has come to rest; a reset does not clear its memories."""
    try:
        for sm in sms:
            await sm.env.idle(timeout=DRAIN)
            for warp in sm.warps:
                sm.env.requests.commit_group(warp.thread)
                await sm.env.requests.wait_group(0, thread=warp.thread, timeout=DRAIN)
    except CheckError:
        return False
    return True


def _refused(sms: Sequence[SM]) -> None:
    for sm in sms:
        for record in sm.env.errors:
            asked = {request.number: request for request in sm.sanitizer.requests}
            what = asked.get(record.request_id, f"request {record.request_id}")
            raise KernelError(
                f"the unit refused {what}: {record.cause}, dimension {record.dim}, value "
                f"{record.value:#x}"
            )


def ledger(sms: Sequence[SM]) -> str:
    """What is outstanding, in words: what explains it, barriers, requests, warps, the unit."""
    sanitizer = sms[0].sanitizer
    words = {key: sms[key[0]].env.barriers.read(key[1]) for key in sanitizer.barriers}
    rows = sanitizer.diagnosis(words)
    rows.append("barriers:")
    for key, word in words.items():
        barrier = sanitizer.barriers[key]
        rows.append(
            f"  {barrier.name}: phase {word.phase}, {word.pending} of {word.expected} arrivals "
            f"pending, tx-count {word.tx_count}; {barrier.flips} phases completed"
        )
    in_flight = [f"  {request}" for request in sanitizer.requests if request.done is None]
    rows += ["requests in flight:", *(in_flight or ["  none"]), "warps:"]
    for sm in sms:
        for warp in sm.warps:
            if warp.doing is not None:
                what, since = warp.doing
                rows.append(f"  {warp.watched.role}: in '{what}' since cycle {since}")
    return "\n".join([*rows, "unit:", sms[0].env.shared.ledger()])


def _record(sm: SM) -> SmRecord:
    logs = {name: sm.env.log(kind) for name, kind in LOGS.items()}
    stamps = {name: log["cycle"] for name, log in logs.items()}
    return SmRecord(
        spans=sm.spans,
        tensor_cores=list(sm.tensor_cores.busy),
        scheduler=list(sm.scheduler.busy),
        smem_port=list(sm.smem_port.busy),
        mufu=list(sm.mufu.busy),
        flips=sm.counts.flips,
        waits=sm.counts.waits,
        load_bytes=sm.load_bytes,
        store_bytes=int(logs["lines_written"]["value"].sum()) * PIECE_BYTES,
        fma=sm.counts.fma,
        bank_conflicts=sm.counts.bank_conflicts,
        **stamps,
    )
