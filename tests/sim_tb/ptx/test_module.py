"""Kernels launched from Python: arguments, SIMT, instructions, and messages of mistakes."""

from fractions import Fraction

import numpy as np
import pytest

from golden import TensorMap
from sim_tb.arithmetic.rounding import fused_single
from sim_tb.ptx import Module, PtxError

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"

SEED = 24


def module(body: str, parameters: str = ".param .u64 out", declared: str = "") -> Module:
    """Return a module with the entry ``k`` and registers p, r, d and f."""
    registers = ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %d<16>;"
    return Module(
        f"{HEAD}.visible .entry k({parameters})\n{{\n{registers} .reg .f32 %f<16>;\n{declared}\n"
        f"{body}\nret;\n}}\n"
    )


STORE = """
mov.u32 %r15, %tid.x;
mul.wide.u32 %d15, %r15, 4;
ld.param.u64 %d14, [out];
add.s64 %d15, %d14, %d15;
st.global.u32 [%d15], %r1;
"""
"""Store %r1 of each thread."""


def run(body: str, threads: int = 32, declared: str = "") -> np.ndarray:
    """Return %r1 of each thread after ``body``."""
    out = np.zeros(threads, np.uint32)
    module(body + STORE, declared=declared).launch("k", (1,), (threads,), [out], engine="golden")
    return out


TWO = "mov.u32 %r2, %tid.x; mul.lo.s32 %r2, %r2, 0x9E3779B1; not.b32 %r3, %r2; shr.u32 %r3, %r3, 3;"
A = (np.arange(32, dtype=np.uint64) * 0x9E3779B1 & 0xFFFFFFFF).astype(np.uint32)
B = ~A >> np.uint32(3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("add.s32 %r1, %r2, %r3;", A + B),
        ("sub.s32 %r1, %r2, %r3;", A - B),
        ("mul.hi.u32 %r1, %r2, %r3;", (A.astype(np.uint64) * B >> np.uint64(32)).astype(np.uint32)),
        ("div.u32 %r1, %r2, %r3;", A // B),
        ("rem.u32 %r1, %r2, %r3;", A % B),
        ("shr.s32 %r1, %r2, 7;", (A.view(np.int32) >> 7).view(np.uint32)),
        ("shl.b32 %r1, %r2, 32;", np.zeros(32, np.uint32)),
        ("bfe.u32 %r1, %r2, 5, 9;", A >> np.uint32(5) & np.uint32(511)),
        ("max.s32 %r1, %r2, %r3;", np.maximum(A.view(np.int32), B.view(np.int32)).view(np.uint32)),
        ("xor.b32 %r1, %r2, %r3;", A ^ B),
        ("setp.lt.u32 %p1, %r2, %r3; selp.b32 %r1, %r2, %r3, %p1;", np.minimum(A, B)),
        ("shfl.sync.bfly.b32 %r1, %r2, 5, 31, -1;", A[np.arange(32) ^ 5]),
        ("redux.sync.max.u32 %r1, %r2, -1;", np.full(32, A.max())),
        ("popc.b32 %r1, %r2;", np.bitwise_count(A).astype(np.uint32)),
    ],
)
def test_integer_instruction(text, expected):
    assert (run(TWO + text) == expected).all()


def test_fma_rounds_once():
    rng = np.random.default_rng(SEED)
    print("seed", SEED)
    bits = rng.integers(0x3F000000, 0x40000000, (3, 4096), dtype=np.uint32)
    a, b, c = bits.view(np.float32)
    c = c * np.float32(2) ** rng.integers(-30, 3, 4096).astype(np.float32) * np.float32(-1)
    got = fused_single(a, b, c)
    for x, y, z, r in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        near = [np.nextafter(np.float32(r), np.float32(to)).item() for to in (-9e9, 9e9)]
        assert all(abs(Fraction(r) - exact) <= abs(Fraction(other) - exact) for other in near)


def test_threads_diverge_and_meet():
    text = """
    mov.u32 %r2, %tid.x; mov.u32 %r1, 0;
    L: add.s32 %r1, %r1, 2; setp.lt.u32 %p1, %r1, %r2; @%p1 bra L;
    bar.warp.sync -1;
    vote.sync.ballot.b32 %r4, 1, -1;
    setp.ne.u32 %p2, %r4, -1; @%p2 mov.u32 %r1, 99;
    """
    lanes = np.arange(32)
    assert (run(text) == np.maximum((lanes + 1) // 2 * 2, 2)).all()


def test_thread_waits_for_a_later_one_of_its_warp():
    text = """
    mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0; @%p1 bra OTHER;
    SPIN: ld.shared.u32 %r3, [flag]; nanosleep.u32 20; setp.eq.u32 %p2, %r3, 0; @%p2 bra SPIN;
    bra.uni DONE;
    OTHER: st.shared.u32 [flag], 1;
    DONE: mov.u32 %r1, 7;
    """
    assert (run(text, declared=".shared .align 4 .b32 flag;") == 7).all()


def test_named_barrier_orders_warps():
    text = """
    mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, 32; @%p1 bra FIRST;
    st.shared.u32 [flag], 5;
    FIRST: bar.sync 1, 64; ld.shared.u32 %r1, [flag];
    """
    assert (run(text, threads=64, declared=".shared .align 4 .b32 flag;") == 5).all()


@pytest.mark.simulators
@pytest.mark.parametrize("engine", ["golden", "unit"])
def test_tensor_map_and_arrays_as_arguments(engine):
    text = """
    mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0;
    mov.b64 %d1, map; cvta.param.u64 %d1, %d1;
    mov.u32 %r2, tile; mov.u32 %r3, bar;
    @%p1 bra READY;
    mbarrier.init.shared::cta.b64 [%r3], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes \
[%r2], [%d1, {0, 3}], [%r3];
    READY: bar.sync 0;
    WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;
    @!%p2 bra WAIT;
    mad.lo.s32 %r4, %r1, 4, %r2; ld.shared.u32 %r1, [%r4];
    """
    array = np.arange(256, dtype=np.uint32).reshape(8, 32)
    out = np.zeros(32, np.uint32)
    kernel = module(
        text + STORE,
        ".param .u64 in, .param .align 64 .b8 map[128], .param .u64 out",
        ".shared .align 128 .b8 tile[128]; .shared .align 8 .b64 bar;",
    )
    tensor_map = TensorMap.tiled("u32", 0, (32, 8), (128,), (32, 1))
    kernel.launch("k", (1,), (32,), [array, tensor_map, out], engine=engine)
    assert (out == array[3]).all()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("st.global.u32 [0], 1;", r"line 9: address 0x0 is outside global memory \(4 bytes\), bl"),
        ("st.shared.u32 [1], 1;", r"address 0x1 is outside shared memory .*thread \(0, 0, 0\)"),
        ("mov.u32 %r2, bar; L: mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0;"
         "@!%p1 bra L;", r"deadlock: 32 threads before line 9: mbarrier.try_wait.*\(phase 0, "),
        ("trap;", "line 9: trap, block"),
        ("tanh.full.f32 %f1, %f2;", "line 9: tanh.full.f32 is not supported"),
        ("bra MISSING;", "line 9: no label MISSING"),
        ("add.s32 %r99, %r1, %r1;", "line 9: %r99 is not a register"),
    ],
)  # fmt: skip
def test_mistake_is_named_and_arrays_are_unchanged(body, message):
    text = f"mov.u32 %r1, 1;{STORE}".replace("\n", " ") + f"\n{body}"
    out = np.zeros(32, np.uint32)
    declared = ".shared .align 8 .b64 bar;"
    with pytest.raises(PtxError, match=message):
        module(text, declared=declared).launch("k", (1,), (32,), [out], engine="golden")
    assert not out.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entry": "j"}, "no entry j: the text has k"),
        ({"args": []}, "k has 1 parameters, 0 arguments are given"),
        ({"args": [np.uint32(4)]}, "out has 8 bytes, its argument has 4"),
        ({"args": ["text"]}, "out: an argument of type str is no parameter"),
        ({"grid": (0,)}, r"grid = \(0,\): must be one to three extents of at least 1"),
        ({"block": (1025,)}, r"block = \(1025,\): must be at most 1024 together"),
        ({"cluster": (2,)}, r"grid = \(1, 1, 1\): must be multiples of cluster = \(2, 1, 1\)"),
        ({"smem": 232449}, "smem = 232449: must be from 0 to 232448 for k"),
    ],
)
def test_wrong_launch_is_refused(change, message):
    arguments = {"entry": "k", "grid": (1,), "block": (32,), "args": [np.zeros(32, np.uint32)]}
    with pytest.raises(PtxError, match=message):
        module("").launch(**{**arguments, **change})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\x7fELF\x02", "this is a cubin or fatbin, not PTX: get PTX from `nvcc -ptx"),
        (HEAD.replace("90a", "80") + ".entry k() { ret; }", ".target sm_80: must be sm_90"),
        (HEAD, "the text has no .entry"),
        (HEAD + ".entry k() {\nret", "line 5: the text ends within a statement"),
        (HEAD + ".entry k() {\n`", "line 5: character '`' is not PTX"),
    ],
)
def test_broken_text_is_refused(text, message):
    with pytest.raises(PtxError, match=message):
        Module(text)
