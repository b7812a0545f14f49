"""The sanitizer follows PTX: each wrong kernel is named by line, and its mended twin is not."""

from dataclasses import replace

import numpy as np
import pytest

from golden import TensorMap
from sim_tb.ptx import PtxError
from sim_tb.ptx.kernel import Kernels
from sim_tb.ptx.launch import run_on_golden
from sim_tb.ptx.replay import Case, launch_of, replay_on_golden, replay_on_unit
from sim_tb.sm.record import Setting
from tests.sim_tb.ptx.test_module import module
from tests.sim_tb.ptx.test_replay import ALONE, CASES, CLUSTERED, cases
from tests.top.units import CLUSTER

PARAMETERS = ".param .u64 in, .param .align 64 .b8 map[128], .param .u64 out"
DECLARED = ".shared .align 128 .b8 tile[128]; .shared .align 8 .b64 bar;"

BEGIN = """
mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; ld.param.u64 %d9, [out];
mov.b64 %d1, map; cvta.param.u64 %d1, %d1; mov.u32 %r2, tile; mov.u32 %r3, bar;
mad.lo.s32 %r4, %r1, 4, %r2;
"""
INIT = "@!%p1 mbarrier.init.shared::cta.b64 [%r3], 1; bar.sync 0;"
EXPECT = "@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;"
LOAD = (
    "@!%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%r2], [%d1, {0, 3}], [%r3];"
)
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0; @!%p2 bra W;"
READ = "ld.shared.u32 %r5, [%r4];"
WRITE = "st.shared.u32 [%r4], %r1;"
OTHER = "st.shared.u32 [%r4], %r3;"
STORE = (
    "@!%p1 cp.async.bulk.global.shared::cta.bulk_group [%d9], [%r2], 128; "
    "@!%p1 cp.async.bulk.commit_group;"
)
FENCE = "fence.proxy.async.shared::cta;"
GROUP = "@!%p1 cp.async.bulk.wait_group 0;"

MISTAKES = {
    "read without a wait": (
        [INIT, EXPECT, LOAD, READ, WAIT],
        [INIT, EXPECT, LOAD, WAIT, READ],
        32,
        r"line 14: warp 0: ld.shared.u32 \(line 14\) .*cp.async.bulk.tensor.*\(line 13\).*waited",
    ),
    "store without a fence between the proxies": (
        [WRITE, "bar.sync 0;", STORE, GROUP],
        [WRITE, FENCE, "bar.sync 0;", STORE, GROUP],
        32,
        r"line 13: .*without fence.proxy.async, .*st.shared.u32 \(line 11\) by warp 0",
    ),
    "write before the bulk group is read": (
        [WRITE, FENCE, "bar.sync 0;", STORE, OTHER, GROUP],
        [WRITE, FENCE, "bar.sync 0;", STORE, GROUP, "bar.sync 0;", OTHER],
        32,
        r"line 15: .*st.shared.u32 \(line 15\).*overwrites .*cp.async.bulk.wait_group",
    ),
    "warps that race": (
        [WRITE, "ld.shared.u32 %r5, [%r2+124];"],
        [WRITE, "bar.sync 0;", "ld.shared.u32 %r5, [%r2+124];"],
        64,
        r"line 12: .*ld.shared.u32 \(line 12\).*st.shared.u32 \(line 11\) by warp",
    ),
    "barrier that was never initialised": (
        [EXPECT, LOAD, WAIT],
        [INIT, EXPECT, LOAD, WAIT],
        32,
        r"line 11: .*mbarrier.arrive.expect_tx.* never initialised",
    ),
    "more arrivals than expected": (
        [INIT, "mbarrier.arrive.shared::cta.b64 _, [%r3];"],
        [INIT, "@!%p1 mbarrier.arrive.shared::cta.b64 _, [%r3];"],
        32,
        r"line 12: .*32 arrivals at .*, where 1 are expected",
    ),
    "end with a load in flight": (
        [INIT, EXPECT, LOAD],
        [INIT, EXPECT, LOAD, WAIT],
        32,
        r"may still write to its shared memory",
    ),
}


def launch(lines, threads, engine="golden"):
    array = np.arange(512, dtype=np.uint32).reshape(8, 64)
    tensor_map = TensorMap.tiled("u32", 0, (64, 8), (256,), (32, 1))
    out = np.zeros(64, np.uint32)
    declared = DECLARED.replace("tile[128]", f"tile[{4 * threads}]")
    body = BEGIN.strip() + "\n" + "\n".join(lines)
    kernel = module(body, PARAMETERS, declared)
    arguments = [array, tensor_map, out]
    kernel.launch("k", (1,), (threads,), arguments, sanitize=True, engine=engine)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_named_and_the_twin_is_clean(name):
    wrong, mended, threads, message = MISTAKES[name]
    with pytest.raises(PtxError, match=message):
        launch(wrong, threads)
    launch(mended, threads)


@pytest.mark.simulators
@pytest.mark.parametrize(
    "name", ["read without a wait", "store without a fence between the proxies"]
)
def test_mistakes_before_the_unit(name):
    wrong, mended, threads, message = MISTAKES[name]
    with pytest.raises(PtxError, match=message):
        launch(wrong, threads, "unit")
    launch(mended, threads, "unit")


ODD = {"a13_walk": r"mbarrier.inval .* phase 1 has begun: 1 arrivals"}
"""Recorded launches that do what the sanitizer names, to try out what silicon does then."""


@pytest.mark.simulators
def test_recorded_launches_are_clean():
    made = list(replay_on_unit(cases(ALONE), Setting(), sanitize=True))
    for outcome in made:
        name = outcome.line.partition(":")[0]
        assert outcome.passed == (name not in ODD), outcome.line


@pytest.mark.simulators(CLUSTER)
def test_recorded_clusters_are_clean():
    made = list(replay_on_unit(cases(CLUSTERED), Setting(), 4, CLUSTER, sanitize=True))
    assert all(outcome.passed for outcome in made), made


def test_odd_launch_is_named():
    outcome = replay_on_golden(Case.read(CASES / "a13_walk"), sanitize=True)
    assert not outcome.passed
    assert "mbarrier.inval on barrier at 0x5428" in outcome.line


@pytest.mark.parametrize(
    ("name", "removed", "message"),
    [
        ("a03_gemm_ws_small", "wgmma.wait_group.sync.aligned 0;", "no wgmma.wait_group covers yet"),
        ("a10_flash_edge", "wgmma.fence.sync.aligned;", "without wgmma.fence between them"),
    ],
)
def test_registers_of_products(name, removed, message):
    case = Case.read(CASES / name)
    assert removed in case.text
    text = case.text.replace(removed, "")
    wrong = replace(launch_of(case, sanitize=True), text=text)
    with pytest.raises(PtxError, match=message):
        run_on_golden(Kernels(text).kernel(wrong.entry), wrong)
