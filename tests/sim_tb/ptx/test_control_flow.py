"""Diverged threads meet at the immediate post-dominator, however the code is laid out."""

import numpy as np
import pytest

from sim_tb.ptx import Module
from sim_tb.ptx.control_flow import block_order, successors
from tests.sim_tb.ptx.test_module import HEAD, STORE, module, run

OUT_OF_LINE = """
mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 1; setp.eq.u32 %p1, %r3, 0; mov.u32 %r1, 5;
@%p1 bra FAR;
JOIN: activemask.b32 %r4;
@%p1 bra DONE; add.u32 %r1, %r1, 0;
bra DONE;
FAR: mov.u32 %r1, 7;
bra JOIN;
DONE: add.u32 %r1, %r1, %r4;
"""


def kernel_of(body):
    return module(body + STORE).kernel("k")


def test_blocks_behind_their_join_run_before_it():
    """Half of the threads go through a block that the compiler has put behind the join."""
    threads = np.arange(32)
    expected = np.where(threads % 2, 5, 7) + 0xFFFFFFFF & 0xFFFFFFFF
    assert (run(OUT_OF_LINE) == expected.astype(np.uint32)).all()


def test_order_has_each_block_behind_those_that_lead_to_it():
    kernel = kernel_of(OUT_OF_LINE)
    following = successors(kernel.source, [])
    for number, each in enumerate(following):
        for target in each:
            same = kernel.ranks[number] == kernel.ranks[target]
            assert same or kernel.ranks[number] < kernel.ranks[target]


@pytest.mark.parametrize("exits", [3, 4, 31])
def test_threads_that_leave_a_loop_wait_for_the_others(exits):
    body = f"""
    mov.u32 %r2, %tid.x; mov.u32 %r1, 0; mov.u32 %r5, 0;
    bra LOOP;
    AFTER: activemask.b32 %r1; bra DONE;
    LOOP: add.u32 %r5, %r5, 1; rem.u32 %r3, %r2, {exits}; setp.ge.u32 %p1, %r5, %r3;
    @%p1 bra AFTER;
    bra LOOP;
    DONE: add.u32 %r1, %r1, 0;
    """
    assert (run(body) == 0xFFFFFFFF).all()


def test_straight_code_is_one_block():
    ranks, ends = block_order(kernel_of("mov.u32 %r1, 1;").source, [])
    assert len(set(ranks[:-1])) == 1
    assert ends[0] == len(ranks) - 1


def test_threads_in_a_function_are_waited_for():
    text = (
        HEAD
        + """
.func (.param .b32 r) seven() { .reg .b32 %x; mov.u32 %x, 7; st.param.b32 [r], %x; ret; }
.visible .entry k(.param .u64 out) {
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %d<16>; .param .b32 result;
mov.u32 %r1, 5; mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 1; setp.eq.u32 %p1, %r3, 0;
@%p1 bra JOIN;
call.uni (result), seven, ();
ld.param.b32 %r1, [result];
JOIN: activemask.b32 %r4; add.u32 %r1, %r1, %r4;
"""
        + STORE
        + "ret; }"
    )
    out = np.zeros(32, np.uint32)
    Module(text).launch("k", (1,), (32,), [out], engine="golden")
    expected = np.where(np.arange(32) % 2, 7, 5) + 0xFFFFFFFF & 0xFFFFFFFF
    assert (out == expected.astype(np.uint32)).all()
