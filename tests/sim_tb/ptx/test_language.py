"""Functions, branches by index, and variables of the file."""

import numpy as np
import pytest

from sim_tb.ptx import Module, PtxError

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"

STORE = """
mov.u32 %r15, %tid.x; mul.wide.u32 %d15, %r15, 4; ld.param.u64 %d14, [out];
add.s64 %d15, %d14, %d15; st.global.u32 [%d15], %r1; ret;
"""
"""Store %r1 of each thread."""

TWICE = """
.func (.param .b32 twice_retval0) twice(.param .b32 twice_param_0, .param .b32 twice_param_1)
{ .reg .b32 %r<4>; .reg .pred %p<2>;
  ld.param.u32 %r1, [twice_param_0]; ld.param.u32 %r2, [twice_param_1];
  setp.lt.u32 %p1, %r1, 16; @%p1 bra SMALL;
  add.s32 %r3, %r1, %r1; st.param.b32 [twice_retval0+0], %r3; ret;
SMALL: mad.lo.s32 %r3, %r1, 2, %r2; st.param.b32 [twice_retval0+0], %r3; ret; }
"""

CALL = """{ .param .b32 param0; st.param.b32 [param0+0], %r1; .param .b32 param1;
st.param.b32 [param1+0], 100; .param .b32 retval0;
call.uni (retval0), twice, (param0, param1); ld.param.b32 %r1, [retval0+0]; }
"""

LANES = np.arange(32, dtype=np.uint32)


def module(body, before="", parameters=".param .u64 out"):
    registers = ".reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<16>; .reg .b64 %d<16>;"
    return Module(f"{HEAD}{before}\n.entry k({parameters})\n{{ {registers}\n{body}\n{STORE} }}")


def run(body, before=""):
    """Return %r1 of each thread."""
    out = np.zeros(32, np.uint32)
    module(body, before).launch("k", (1,), (32,), [out], engine="golden")
    return out


def twice(values):
    return np.where(values < 16, 2 * values + 100, 2 * values)


def test_function_returns_to_each_caller():
    text = "mov.u32 %r1, %tid.x;" + CALL + CALL
    assert (run(text, TWICE) == twice(twice(LANES))).all()


def test_threads_call_from_two_places():
    text = f"""
    mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; @%p1 bra ODD;
    {CALL} bra DONE;
    ODD: add.s32 %r1, %r1, 1000; {CALL}
    DONE: bar.warp.sync -1;
    """
    assert (run(text, TWICE) == twice(np.where(LANES % 2, LANES + 1000, LANES))).all()


def test_function_calls_function():
    outer = TWICE + """
    .func (.param .b32 outer_retval0) outer(.param .b32 outer_param_0)
    { .reg .b32 %r<4>; ld.param.u32 %r1, [outer_param_0]; add.s32 %r1, %r1, 1;
    """ + CALL + "st.param.b32 [outer_retval0], %r1; ret; }"  # fmt: skip
    text = "mov.u32 %r1, %tid.x;" + CALL.replace("twice", "outer").replace(", param1)", ")")
    assert (run(text, outer) == twice(LANES + 1)).all()


def test_struct_is_an_argument():
    function = """
    .func (.param .align 8 .b8 swap_retval0[8]) swap(.param .align 8 .b8 swap_param_0[8])
    { .reg .b32 %r<3>; ld.param.v2.u32 {%r1, %r2}, [swap_param_0];
      st.param.v2.b32 [swap_retval0], {%r2, %r1}; ret; }
    """
    text = """
    mov.u32 %r1, %tid.x; mov.u32 %r2, 77;
    { .param .align 8 .b8 param0[8]; st.param.v2.b32 [param0], {%r1, %r2};
    .param .align 8 .b8 retval0[8]; call (retval0), swap, (param0);
    ld.param.b32 %r3, [retval0]; ld.param.b32 %r4, [retval0+4]; }
    mad.lo.s32 %r1, %r3, 1000, %r4;
    """
    assert (run(text, function) == 77000 + LANES).all()


@pytest.mark.parametrize(
    ("body", "before", "message"),
    [
        (CALL, "", "function twice is not in the file"),
        (CALL, ".extern .func (.param .b32 a) twice(.param .b32 b, .param .b32 c);",
         "function twice is not in the file"),
        ("call twice, ();", TWICE, "twice has 2 parameters or results, the call 0"),
        (CALL, TWICE.replace("add.s32 %r3, %r1, %r1;", CALL), "recursion of twice"),
        ("mov.u32 %r1, 3; T: .branchtargets A, B; brx.idx %r1, T; A: B:", "",
         r"index 3 must be below 2, block \(0, 0, 0\), thread \(0, 0, 0\)"),
        ("brx.idx %r1, T;", "", "no .branchtargets T"),
        ("add.s32 %r1, %r1;", "", "add.s32 is not supported: 2 operands: must be 3"),
    ],
)  # fmt: skip
def test_mistake_is_named(body, before, message):
    with pytest.raises(PtxError, match=message):
        run(body, before)


def test_branch_by_index():
    text = """
    mov.u32 %r2, %tid.x; rem.u32 %r2, %r2, 3;
    T: .branchtargets A, B, C;
    brx.idx %r2, T;
    A: mov.u32 %r1, 10; bra DONE;
    B: mov.u32 %r1, 20; bra DONE;
    C: mov.u32 %r1, 30;
    DONE:
    """
    assert (run(text) == LANES % 3 * 10 + 10).all()


def test_variables_of_the_file():
    before = """
    .global .align 4 .u32 counter = 5;
    .const .align 4 .b32 table[4] = {1, -2, 0x30, 4};
    .global .align 1 .b8 name[3] = {65, 66};
    .visible .global .align 8 .f64 half = 0d3FE0000000000000;
    """
    text = """
    mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; mul.wide.u32 %d1, %r2, 4; mov.u64 %d2, table;
    add.s64 %d2, %d2, %d1; ld.const.u32 %r3, [%d2];
    atom.global.add.u32 %r4, [counter], 1;
    cvta.global.u64 %d3, %d2; ld.u32 %r5, [%d3]; sub.s32 %r5, %r5, %r3;
    mov.u64 %d4, name; ld.global.u8 %h1, [%d4+1]; cvt.u32.u16 %r6, %h1;
    ld.const.u32 %r7, [table+8]; ld.global.u32 %r8, [half+4]; shr.u32 %r8, %r8, 20;
    mad.lo.s32 %r1, %r4, 1000, %r3; add.s32 %r1, %r1, %r5; add.s32 %r1, %r1, %r6;
    add.s32 %r1, %r1, %r7; add.s32 %r1, %r1, %r8;
    """
    table = np.array([1, -2, 0x30, 4])[LANES % 4]
    expected = (5 + LANES) * 1000 + table + 66 + 0x30 + 0x3FE
    assert (run(text, before) == expected.astype(np.uint32)).all()


def test_variables_begin_each_launch_anew():
    kernel = module("atom.global.add.u32 %r1, [counter], 1;", ".global .u32 counter = 7;")
    for _ in range(2):
        out = np.zeros(32, np.uint32)
        kernel.launch("k", (1,), (32,), [out], engine="golden")
        assert sorted(out) == list(range(7, 39))


def test_special_registers():
    text = """
    mov.u32 %r1, %lanemask_ge; mov.u32 %r2, %lanemask_gt; xor.b32 %r1, %r1, %r2;
    mov.u32 %r3, %lanemask_eq; sub.s32 %r1, %r1, %r3; mov.u32 %r4, WARP_SZ;
    mov.u32 %r5, %total_smem_size; mov.u32 %r6, %aggr_smem_size; sub.s32 %r6, %r6, %r5;
    add.s32 %r1, %r1, %r4; add.s32 %r1, %r1, %r6;
    """
    assert (run(text) == 32 + 1024).all()
