"""Instructions of threads against plain Python, on random operands."""

import numpy as np
import pytest

from sim_tb.ptx import Module, PtxError

SEED = 24
THREADS = 64

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
REGISTERS = """
.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %d<16>; .reg .f32 %f<8>;
.reg .f64 %e<8>; .shared .align 16 .b8 tile[4096];
"""
LOAD = """
mov.u32 %r15, %tid.x; mul.wide.u32 %d15, %r15, 16; ld.param.u64 %d14, [in];
add.s64 %d15, %d14, %d15; ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d15];
mov.b64 %d1, {%r1, %r2}; mov.b64 %d2, {%r3, %r4}; mov.b32 %f1, %r1; mov.b32 %f2, %r2;
mov.b64 %e1, %d1; mov.b64 %e2, %d2;
"""
STORE = """
mul.wide.u32 %d15, %r15, 8; ld.param.u64 %d14, [out]; add.s64 %d15, %d14, %d15;
st.global.u64 [%d15], %d9; ret;
"""


def operands():
    print("seed", SEED)
    rng = np.random.default_rng(SEED)
    values = rng.integers(0, 1 << 32, (THREADS, 4), np.uint32)
    values[::5] &= 0x8000003F
    values[3] = [0, 0, 0, 0]
    values[4] = 0xFFFFFFFF
    return values


def run(body, values, threads=THREADS):
    """Return %d9 of each thread."""
    text = f"{HEAD}.entry k(.param .u64 in, .param .u64 out)\n{{{REGISTERS}{LOAD}{body}{STORE}}}"
    out = np.zeros(threads, np.uint64)
    Module(text).launch("k", (1,), (threads,), [values, out], engine="golden")
    return out


def signed(value, bits=32):
    return value - (1 << bits) if value >> (bits - 1) else value


def words(row):
    return [int(value) for value in row]


def doubles(row):
    a, b, c, d = words(row)
    return a | b << 32, c | d << 32


ALL32, ALL64 = (1 << 32) - 1, (1 << 64) - 1


def bfe(value, start, count, width, *, is_signed):
    start, count = start & 255, count & 255
    sign = value >> min(start + count - 1, width - 1) & 1 if count and is_signed else 0
    bits = [(value >> at & 1 if at < width else sign) for at in range(start, start + count)]
    bits = (bits + [sign] * width)[:width]
    return sum(bit << at for at, bit in enumerate(bits))


def bfi(value, into, start, count):
    start, count = start & 255, count & 255
    for at in range(count):
        if start + at < 32:
            into = into & ~(1 << start + at) | (value >> at & 1) << start + at
    return into


def find(value, width, *, shift):
    if not value:
        return ALL32
    return width - value.bit_length() if shift else value.bit_length() - 1


def lop3(a, b, c, table):
    return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i
               for i in range(32))  # fmt: skip


def dp4a(a, b, c):
    parts = zip(a.to_bytes(4, "little"), b.to_bytes(4, "little"), strict=True)
    return (sum(signed(x, 8) * y for x, y in parts) + c) & ALL32


CASES = {
    "bfe.u32 %r9, %r1, %r2, %r3;": lambda a, b, c, _: bfe(a, b, c, 32, is_signed=False),
    "bfe.s32 %r9, %r1, %r2, %r3;": lambda a, b, c, _: bfe(a, b, c, 32, is_signed=True),
    "bfe.s32 %r9, %r1, 5, 9;": lambda a, *_: bfe(a, 5, 9, 32, is_signed=True),
    "bfi.b32 %r9, %r1, %r2, %r3, %r4;": bfi,
    "bfi.b32 %r9, %r1, %r2, 7, 20;": lambda a, b, *_: bfi(a, b, 7, 20),
    "popc.b32 %r9, %r1;": lambda a, *_: a.bit_count(),
    "popc.b64 %r9, %d1;": lambda a, b, *_: a.bit_count() + b.bit_count(),
    "clz.b32 %r9, %r1;": lambda a, *_: 32 - a.bit_length(),
    "clz.b64 %r9, %d1;": lambda a, b, *_: 64 - (a | b << 32).bit_length(),
    "brev.b32 %r9, %r1;": lambda a, *_: int(f"{a:032b}"[::-1], 2),
    "bfind.u32 %r9, %r1;": lambda a, *_: find(a, 32, shift=False),
    "bfind.shiftamt.u32 %r9, %r1;": lambda a, *_: find(a, 32, shift=True),
    "bfind.s32 %r9, %r1;": lambda a, *_: find(a ^ ALL32 if a >> 31 else a, 32, shift=False),
    "lop3.b32 %r9, %r1, %r2, %r3, 0xCA;": lambda a, b, c, _: lop3(a, b, c, 0xCA),
    "prmt.b32.f4e %r9, %r1, %r2, %r3;":
        lambda a, b, c, _: (a | b << 32) >> 8 * (c & 3) & ALL32,
    "bmsk.clamp.b32 %r9, %r1, %r2;":
        lambda a, b, *_: (1 << min(b, 32)) - 1 << min(a, 32) & ALL32,
    "szext.wrap.s32 %r9, %r1, %r2;":
        lambda a, b, *_: bfe(a, 0, b & 31, 32, is_signed=True),
    "shf.l.wrap.b32 %r9, %r1, %r2, %r3;":
        lambda a, b, c, _: ((a | b << 32) << (c & 31)) >> 32 & ALL32,
    "sad.s32 %r9, %r1, %r2, %r3;":
        lambda a, b, c, _: (abs(signed(a) - signed(b)) + c) & ALL32,
    "mul24.hi.s32 %r9, %r1, %r2;":
        lambda a, b, *_: signed(a & 0xFFFFFF, 24) * signed(b & 0xFFFFFF, 24) >> 16 & ALL32,
    "mad24.lo.u32 %r9, %r1, %r2, %r3;":
        lambda a, b, c, _: ((a & 0xFFFFFF) * (b & 0xFFFFFF) + c) & ALL32,
    "dp4a.s32.u32 %r9, %r1, %r2, %r3;": lambda a, b, c, _: dp4a(a, b, c),
    "slct.u32.s32 %r9, %r1, %r2, %r3;": lambda a, b, c, _: b if c >> 31 else a,
    "cnot.b32 %r9, %r1;": lambda a, *_: int(a == 0),
    "div.s32 %r9, %r1, %r2;":
        lambda a, b, *_: int(signed(a) / signed(b)) & ALL32 if b else ALL32,
    "cvt.sat.s8.s32 %r9, %r1;": lambda a, *_: min(max(signed(a), -128), 127) & ALL32,
    "cvt.sat.u16.s32 %h1, %r1; cvt.u32.u16 %r9, %h1;":
        lambda a, *_: min(max(signed(a), 0), 65535),
    "mul.hi.s32 %r9, %r1, %r2;": lambda a, b, *_: signed(a) * signed(b) >> 32 & ALL32,
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_integer_instruction(text):
    values = operands()
    got = run(f"mov.u32 %r9, 0; {text} cvt.u64.u32 %d9, %r9;", values)
    assert got.tolist() == [CASES[text](*words(row)) for row in values]


def test_sums_and_products_of_128_bits():
    values = operands()
    text = """
    add.cc.u64 %d3, %d1, %d2; addc.cc.u64 %d4, %d1, %d1; addc.u64 %d5, 0, 0;
    sub.cc.u32 %r5, %r1, %r3; subc.u32 %r6, %r2, %r4; mov.b64 %d6, {%r5, %r6};
    mul.lo.u64 %d7, %d1, %d2; mad.lo.cc.u32 %r7, %r1, %r2, %r3; madc.hi.u32 %r8, %r1, %r2, %r4;
    mov.b64 %d8, {%r7, %r8};
    mad.lo.u64 %d9, %d4, 3, %d3; xor.b64 %d9, %d9, %d5; xor.b64 %d9, %d9, %d6;
    xor.b64 %d9, %d9, %d7; xor.b64 %d9, %d9, %d8;
    """
    expected = []
    for row in values:
        a, b = doubles(row)
        low = (a + b) & ALL64
        total = a + a + (a + b >> 64)
        product = words(row)[0] * words(row)[1] + words(row)[2] + (words(row)[3] << 32)
        result = (total * 3 + low) & ALL64
        expected.append(result ^ total >> 64 ^ (a - b & ALL64) ^ (a * b & ALL64)
                        ^ (product & ALL64))  # fmt: skip
    assert run(text, values).tolist() == expected


def test_copies_of_threads():
    values = operands()
    text = """
    mov.u32 %r5, tile; mad.lo.s32 %r6, %r15, 16, %r5; and.b32 %r7, %r15, 15;
    setp.lt.u32 %p1, %r15, 8;
    cp.async.cg.shared.global.L2::128B [%r6], [%d15], 16;
    cp.async.ca.shared.global [%r6+1024], [%d15], 4, 2;
    cp.async.commit_group;
    cp.async.ca.shared::cta.global [%r6+1032], [%d15+8], 8, %p1;
    cp.async.commit_group;
    cp.async.wait_group 1; cp.async.wait_all;
    ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r6];
    ld.shared.u32 %r8, [%r6+1024]; ld.shared.u32 %r9, [%r6+1036];
    xor.b32 %r8, %r8, %r4; mov.b64 %d9, {%r8, %r9};
    """
    got = run(text, values)
    low = values[:, 0] & 0xFFFF ^ values[:, 3]
    high = np.where(np.arange(THREADS) < 8, 0, values[:, 3])
    assert (got == low | high.astype(np.uint64) << np.uint64(32)).all()


def test_mbarrier_counts_copies_of_threads():
    text = """
    mov.u32 %r5, tile; mad.lo.s32 %r6, %r15, 16, %r5; setp.ne.u32 %p1, %r15, 0;
    @!%p1 mbarrier.init.shared.b64 [%r5+2048], 64; bar.sync 0;
    cp.async.ca.shared.global [%r6], [%d15], 16;
    cp.async.mbarrier.arrive.shared.b64 [%r5+2048];
    cp.async.mbarrier.arrive.noinc.shared.b64 [%r5+2048];
    W: mbarrier.try_wait.parity.shared.b64 %p2, [%r5+2048], 0; @!%p2 bra W;
    xor.b32 %r7, %r15, 63; mad.lo.s32 %r6, %r7, 16, %r5; ld.shared.u64 %d9, [%r6+8];
    """
    values = operands()
    got = run(text, values)
    assert got.tolist() == [doubles(row)[1] for row in values[::-1]]


def test_votes_at_a_barrier():
    text = """
    setp.lt.u32 %p1, %r15, 40; bar.red.popc.u32 %r5, 0, %p1;
    barrier.cta.red.and.aligned.pred %p2, 1, 64, %p1; bar.red.or.pred %p3, 2, !%p1;
    selp.u32 %r6, 1, 0, %p2; selp.u32 %r7, 2, 0, %p3; add.s32 %r6, %r6, %r7;
    mov.b64 %d9, {%r5, %r6};
    """
    assert (run(text, operands()) == 40 + (2 << 32)).all()


def test_matches_of_all_threads():
    text = """
    and.b32 %r5, %r15, 32; match.all.sync.b32 %r6|%p1, %r5, -1;
    match.all.sync.b32 %r7|%p2, %r15, -1; match.any.sync.b32 %r8, %r15, -1;
    selp.u32 %r9, %r8, 0, %p1; selp.u32 %r10, 7, %r9, %p2; xor.b32 %r6, %r6, %r7;
    mov.b64 %d9, {%r6, %r10};
    """
    lanes = np.arange(THREADS, dtype=np.uint64) % 32
    expected = np.uint64(ALL32) | np.uint64(1) << lanes + np.uint64(32)
    assert (run(text, operands()) == expected).all()


def test_spaces_of_generic_addresses():
    text = """
    mov.u64 %d3, tile; cvta.shared.u64 %d3, %d3; isspacep.shared %p1, %d3;
    isspacep.global %p2, %d3; isspacep.global %p3, %d14; isspacep.local %p4, %d14;
    selp.u64 %d4, 1, 0, %p1; selp.u64 %d5, 2, 0, %p2; selp.u64 %d6, 4, 0, %p3;
    selp.u64 %d7, 8, 0, %p4; add.s64 %d9, %d4, %d5; add.s64 %d9, %d9, %d6; add.s64 %d9, %d9, %d7;
    """
    assert (run(text, operands()) == 5).all()


HALF = {
    "add.f16x2 %r9, %r1, %r2;": lambda a, b, _: a + b,
    "sub.rn.f16x2 %r9, %r1, %r2;": lambda a, b, _: a - b,
    "mul.sat.f16x2 %r9, %r1, %r2;": lambda a, b, _: np.clip(a * b, 0, 1),
    "fma.rn.relu.f16x2 %r9, %r1, %r2, %r3;": lambda a, b, c: np.maximum(a * b + c, 0),
    "neg.f16x2 %r9, %r1;": lambda a, *_: -a,
    "abs.f16x2 %r9, %r1;": lambda a, *_: np.abs(a),
    "max.f16x2 %r9, %r1, %r2;": lambda a, b, _: np.maximum(a, b),
    "min.NaN.f16x2 %r9, %r1, %r2;": lambda a, b, _: np.minimum(a, b),
    "max.xorsign.abs.f16x2 %r9, %r1, %r2;":
        lambda a, b, _: np.maximum(np.abs(a), np.abs(b)) * np.sign(a) * np.sign(b),
    "set.lt.f16x2.f16x2 %r9, %r1, %r2;": lambda a, b, _: (a < b).astype(float),
}  # fmt: skip


@pytest.mark.parametrize("text", HALF)
def test_packed_halves(text):
    print("seed", SEED)
    rng = np.random.default_rng(SEED)
    halves = rng.uniform(0.25, 4, (THREADS, 8)) * rng.choice([-1, 1], (THREADS, 8))
    halves = halves.astype(np.float16)
    got = run(f"{text} cvt.u64.u32 %d9, %r9;", halves.view(np.uint32)).astype(np.uint32)
    a, b, c = (halves.reshape(THREADS, 4, 2)[:, at].astype(np.float64) for at in range(3))
    expected = HALF[text](a, b, c).astype(np.float16)
    assert (got.view(np.float16).reshape(THREADS, 2) == expected).all()


def test_comparison_of_packed_halves_gives_two_predicates():
    text = """
    setp.lt.bf16x2 %p1|%p2, %r1, %r2; selp.u64 %d3, 1, 0, %p1; selp.u64 %d4, 2, 0, %p2;
    add.s64 %d9, %d3, %d4;
    """
    values = np.zeros((THREADS, 4), np.uint32)
    values[:, 0], values[:, 1] = 0x3F80_4000, 0x4000_3F80
    values[1, :2] = 0x7FC0_3F80, 0x4000_4000
    assert run(text, values).tolist() == [2, 1] + [2] * (THREADS - 2)


CONVERT = {
    "cvt.rzi.s32.f32 %r9, %f1;": ([1.9, -1.9, np.nan, 3e9, -3e9], [1, -1, 0, 2**31 - 1, -(2**31)]),
    "cvt.rmi.u16.f32 %h1, %f1; cvt.u32.u16 %r9, %h1;":
        ([1.9, -1.9, np.nan, 3e9, 7], [1, 0, 0, 65535, 7]),
    "cvt.rpi.f32.f32 %f3, %f1; mov.b32 %r9, %f3;": ([1.25, -1.25], [0x40000000, 0xBF800000]),
    "cvt.rn.f16x2.f32 %r9, %f1, %f2;": ([1.0, 2.0], [0x3C00_0000, 0x4000_0000]),
    "cvt.rz.bf16x2.f32 %r9, %f1, %f2;": ([1.0078124, -2.0], [0x3F80_0000, 0xC000_0000]),
    "cvt.rn.relu.f16.f32 %h1, %f1; cvt.u32.u16 %r9, %h1;": ([1.0, -2.0], [0x3C00, 0]),
    "cvt.rn.satfinite.e5m2x2.f32 %h1, %f1, %f2; cvt.u32.u16 %r9, %h1;":
        ([1e9, -1.0], [0x7B00, 0xBC00]),
    "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2; cvt.rn.f16x2.e4m3x2 %r9, %h1;":
        ([448.0, 1.0625], [0x5F00_0000, 0x3C00_0000]),
    "cvt.sat.f32.f32 %f3, %f1; mov.b32 %r9, %f3;": ([-3.0, 2.5, np.nan], [0, 0x3F800000, 0]),
}  # fmt: skip


@pytest.mark.parametrize("text", CONVERT)
def test_conversion(text):
    inputs, results = CONVERT[text]
    values = np.zeros((THREADS, 4), np.uint32)
    values[: len(inputs), 0] = np.array(inputs, np.float32).view(np.uint32)
    got = run(f"{text} cvt.u64.u32 %d9, %r9;", values)
    assert got[: len(results)].tolist() == [value & ALL32 for value in results]
    assert (got[len(results) :] == 0).all()


def test_rounding_of_wide_numbers():
    text = """
    cvt.rz.f32.u64 %f3, %d1; cvt.rp.f32.u64 %f4, %d1; mov.b32 %r5, %f3; mov.b32 %r6, %f4;
    sub.s32 %r5, %r6, %r5; cvt.rn.f64.s64 %e3, %d1; cvt.rni.s64.f64 %d3, %e3;
    sub.s64 %d3, %d3, %d1; cvt.u64.u32 %d9, %r5; add.s64 %d9, %d9, %d3;
    """
    values = np.zeros((THREADS, 4), np.uint32)
    values[:, 0] = 1
    values[:, 1] = 1 << 20
    assert (run(text, values) == 1).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cp.async.ca.shared.global [%r1], [%d1], 12;", "is not supported: its size"),
        ("cp.async.cg.shared.global [%r1], [%d1], 8;", "is not supported: its size"),
        ("div.f32 %f1, %f1, %f2;", "its rounding"),
        ("cvt.f16.f32 %h1, %f1;", "its rounding"),
        ("cvt.s32.f32 %r1, %f1;", "its rounding"),
        ("cvt.rn.e4m3x2.f32 %h1, %f1, %f2;", "without .satfinite"),
        ("set.lt.f16x2.f32 %r1, %f1, %f2;", "is not supported"),
        ("ex2.approx.f64 %e1, %e2;", "is not supported: .f64"),
        ("bar.sync.foo 0;", "is not supported: .foo"),
    ],
)
def test_wrong_form_is_refused(text, message):
    with pytest.raises(PtxError, match=message):
        run(text, operands())


def run_once(body, threads=32):
    """Return the first words of ``tile`` after threads have executed ``body``."""
    text = f"""{HEAD}.entry k(.param .u64 out)\n{{{REGISTERS}
    ld.param.u64 %d8, [out]; mov.u32 %r15, %tid.x; mov.u32 %r14, tile; {body} ret; }}"""
    out = np.zeros(8, np.uint32)
    Module(text).launch("k", (1,), (threads,), [out], engine="golden")
    return out


def test_atomic_sums_of_floats():
    text = """
    cvt.rn.f32.u32 %f1, %r15; cvt.rn.f16x2.f32 %r1, %f1, %f1; cvt.rn.bf16x2.f32 %r2, %f1, %f1;
    red.global.add.f32 [%d8], %f1; atom.global.add.noftz.f16x2 %r3, [%d8+4], %r1;
    red.relaxed.gpu.global.max.noftz.bf16x2 [%d8+8], %r2;
    red.global.add.v2.f32 [%d8+16], {%f1, 0f00000001};
    mov.b32 {%h1, %h2}, %r1; atom.shared.add.noftz.f16 %h3, [%r14], %h1; bar.warp.sync -1;
    ld.shared.u32 %r5, [%r14]; st.global.u32 [%d8+12], %r5;
    atom.shared.add.f32 %f2, [%r14+8], 0f00000001; bar.warp.sync -1; ld.shared.u32 %r6, [%r14+8];
    st.global.u32 [%d8+24], %r6;
    """
    total = np.float32(sum(range(32)))
    half = int(np.float16(total).view(np.uint16))
    most = int(np.float32(31).view(np.uint32)) >> 16
    got = run_once(text).tolist()
    bits = int(total.view(np.uint32))
    assert got == [bits, half * 0x10001, most * 0x10001, half, bits, 0, 32, 0]


def test_atomic_exchanges():
    text = """
    atom.shared.cas.b16 %h1, [%r14], 0, 7; atom.shared.exch.b32 %r1, [%r14+4], %r15;
    atom.shared.inc.u32 %r2, [%r14+8], 5; atom.shared.dec.u32 %r3, [%r14+12], 9;
    atom.shared.add.v2.f32 {%f1, %f2}, [%r14+16], {0f3F800000, 0f40000000};
    bar.warp.sync -1; setp.eq.u32 %p1, %r15, 0;
    @%p1 ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r14];
    @%p1 st.global.v4.u32 [%d8], {%r4, %r5, %r6, %r7};
    setp.eq.u32 %p2, %r15, 31; mov.b32 %r8, %f1; mov.b32 %r9, %f2;
    @%p2 st.global.v2.u32 [%d8+16], {%r8, %r9};
    """.replace("[%r14+16], {0f3F800000, 0f40000000}", "[%r14+16], {%f3, %f4}").replace(
        "atom.shared.cas", "mov.f32 %f3, 0f3F800000; mov.f32 %f4, 0f40000000; atom.shared.cas", 1
    )
    dec = 0
    for _ in range(32):
        dec = 9 if dec == 0 or dec > 9 else dec - 1
    last = np.array([31, 62], np.float32).view(np.uint32).tolist()
    assert run_once(text).tolist()[:6] == [7, 31, 32 % 6, dec, *last]


def test_exchange_waits_for_threads_that_are_elsewhere():
    """Half of the threads reach the exchange first; the others come from behind it."""
    text = """
    mov.u32 %r1, 0; setp.ge.u32 %p1, %r15, 16; @%p1 bra LATE;
    mov.u32 %r1, 1;
    MEET: shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1; vote.sync.any.pred %p2, %p1, -1;
    selp.u32 %r3, 100, 0, %p2; add.s32 %r2, %r2, %r3;
    cvt.u64.u32 %d1, %r15; and.b64 %d1, %d1, 7; shl.b64 %d1, %d1, 2; add.s64 %d1, %d1, %d8;
    setp.ge.u32 %p3, %r15, 24; @%p3 st.global.u32 [%d1], %r2; ret;
    LATE: mov.u32 %r1, 2; bra MEET;
    """
    assert (run_once(text) == 101).all()


def test_sparse_product():
    """Rows of 16 values among 32, of which the metadata tell the places."""
    rng = np.random.default_rng(SEED)
    print("seed", SEED)
    a = rng.integers(-4, 5, (64, 16)).astype(np.float16)
    b = rng.integers(-4, 5, (8, 32)).astype(np.float16)
    first = rng.integers(0, 3, (64, 8))
    index = np.stack([first, rng.integers(first + 1, 4)], axis=2).reshape(64, 16)
    dense = np.zeros((64, 32), np.float32)
    dense[np.arange(64)[:, None], np.arange(16) // 2 * 4 + index] = a

    words = np.zeros((128, 8), np.uint32)  # A in registers, then metadata, of each thread
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for register in range(4):
            row = 16 * warp + lane // 4 + 8 * (register % 2)
            column = 2 * (lane % 4) + 8 * (register // 2)
            words[thread, register] = a[row, column : column + 2].view(np.uint32)[0]
        for high in range(2) if lane % 4 < 2 else ():
            row, start = 16 * warp + lane // 4 + 8 * high, 8 * (lane % 4)
            for place, value in enumerate(index[row, start : start + 8].tolist()):
                words[thread, 4] |= np.uint32(value << 16 * high + 2 * place)
    out = np.zeros((128, 4), np.float32)
    text = f"""{HEAD}.entry k(.param .u64 a, .param .u64 b, .param .u64 out)
    {{ {REGISTERS} ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d3, [out];
    mov.u32 %r15, %tid.x; mul.wide.u32 %d4, %r15, 32; add.s64 %d4, %d1, %d4;
    ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%d4]; ld.global.u32 %r5, [%d4+16];
    mul.wide.u32 %d5, %r15, 4; add.s64 %d5, %d2, %d5; ld.global.u32 %r6, [%d5];
    shr.u32 %r7, %r15, 4; and.b32 %r8, %r15, 15; shr.u32 %r9, %r8, 2; and.b32 %r8, %r8, 3;
    mov.u32 %r10, tile; mad.lo.s32 %r10, %r7, 16, %r10; mad.lo.s32 %r10, %r9, 128, %r10;
    mad.lo.s32 %r10, %r8, 4, %r10; st.shared.u32 [%r10], %r6; bar.sync 0;
    mov.u32 %r11, tile; shr.u32 %r11, %r11, 4; cvt.u64.u32 %d6, %r11;
    or.b64 %d6, %d6, {8 << 16 | 32 << 32};
    wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {{%f1, %f2, %f3, %f4}},
    {{%r1, %r2, %r3, %r4}}, %d6, %r5, 0, 0, 1, 1, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    mul.wide.u32 %d7, %r15, 16; add.s64 %d7, %d3, %d7;
    st.global.v4.f32 [%d7], {{%f1, %f2, %f3, %f4}}; ret; }}"""
    Module(text).launch("k", (1,), (128,), [words, b, out], engine="golden")
    expected = dense @ b.astype(np.float32).T
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        row, column = 16 * warp + lane // 4, 2 * (lane % 4)
        assert out[thread].tolist() == [
            *expected[row, column : column + 2],
            *expected[row + 8, column : column + 2],
        ]
