"""Wrong texts and mistakes of kernels: a message with the line, and unchanged arrays."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from golden import TensorMap
from sim_tb.ptx import Module, PtxError
from sim_tb.ptx.kernel import Kernels
from sim_tb.ptx.replay import Case

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
CASES = Path(__file__).parents[2] / "silicon/ptx"
SEED = 24

LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.global.shared::cta.bulk_group"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"


def launch(body):
    text = f"""{HEAD}.entry k(.param .u64 out)
{{ .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %d<16>; .reg .f32 %f<8>;
.shared .align 16 .b8 s[64]; mov.u32 %r1, s; mov.u32 %r2, s; mov.u64 %d9, -16;
{body}
ret; }}"""
    Module(text).launch("k", (1,), (32,), [np.zeros(32, np.uint32)], engine="golden")


FIRST = r"block \(0, 0, 0\), thread \(0, 0, 0\)"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"{LOAD} [%r1], [%d9], 16, [%r2];",
         rf"address 0xfffffffffffffff0 is outside global memory \(16 bytes\), {FIRST}"),
        (f"{STORE} [%d9], [%r1], 16;", rf"address 0xf*0 is outside global memory .*{FIRST}"),
        ("ld.global.u32 %r5, [%d9];", rf"0xfffffffffffffff0 is outside global memory .*{FIRST}"),
        ("ld.global.v2.u32 {%r1, %r3}, [%d9+4];", "is no multiple of 8: global access|outside"),
        ("atom.global.add.u32 %r5, [%d9], 1;", rf"outside global memory \(4 bytes\), {FIRST}"),
        ("cp.async.ca.shared.global [%r1], [%d9], 4;", "outside global memory"),
        ("mov.u32 %r1, -16; st.shared.u32 [%r1], 1;", "0xfffffff0 is outside shared memory"),
        ("mov.u32 %r1, -16; mbarrier.init.shared.b64 [%r1], 1;", "is that of block 255"),
        ("mapa.shared::cluster.u32 %r1, %r2, 99; ld.shared::cluster.u32 %r3, [%r1];",
         "0x63000400 is outside shared memory"),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r9], {%r1};", "0x0 is outside shared memory"),
        (WGMMA + "{%f1,%f1,%f1,%f1}, %d9, %d9, 1,1,1,0,0;", "matrix descriptor 0xf*0: base"),
        ("bar.sync 77;", "barrier 77 of all threads: must be below 16"),
        ("bar.sync 1, 77;", "barrier 1 of 77 threads: must be below 16, and of a multiple of 32"),
        ("setmaxnreg.inc.sync.aligned.u32 77;", "77 must be a multiple of 8 from 24 to 256"),
        ("ld.shared.u32 %f1, [%r99];", "operand %r99"),
        ("mov.b64 {%r1,%r2,%r3}, %d1;", "3 values"),
        ("mov.b64 %d1, {%r1};", "1 values"),
        ("ld.global.v2.u32 {%r1}, [%d1];", "1 values: must be 2"),
        ("bra;", "an operand is missing"),
        ("@%r1 bra X; X:", "@%r1 is no predicate"),
        ("mov.u32 %p1, %r1;", "%p1: a value of another type"),
        ("selp.b32 %r1, %r2, %r3, %r4;", "%r4 is a register of type .b32"),
        ("add.u64 %d1, %p1, 1;", "%p1 is a register of type .pred"),
        ("st.global.u32 %r1, %r2;", "%r1 is no address"),
        ("tensormap.replace.tile.foo.global.b1024.b64 [%d1], %d1;", "is not supported: .foo"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d1, {%r1}], [%r2];",
         "1 coordinates"),
        (WGMMA + "{%f1}, %d1, %d1, 1,1,1,0,0;", "1 values: must be 4"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1}, [%r2];", "1 values: must be 4"),
        ("redux.sync.foo.u32 %r1, %r2, -1;", "its part 'foo'"),
        ("call foo;", "function foo is not in the file"),
        ("mul.lo.pred %p1, %p2, %p3;", "is not supported: .pred"),
        ("mov.u32 %r1, %tid.w;", "operand %tid.w"),
        ("@%p1 bra.uni X; mov.u32 %r3, %tid.x; setp.lt.u32 %p2, %r3, 5; @%p2 bra A; bar.sync 1; "
         "bra X; A: bar.sync 2; X:", "warp that is not converged"),
        (".reg .foo %x;", ".reg .foo is not supported"),
        (".reg .b32 %x<99999999999>;", "99999999999 registers"),
        ("add.s32 %r1, %r1, 1 add.s32", "where ',' must be"),
        ("{ add.s32 %r1, %r1, 1;", "the text ends within a statement"),
    ],
)  # fmt: skip
def test_mistake_is_named_by_line(body, message):
    with pytest.raises(PtxError, match=message) as caught:
        launch(body)
    assert str(caught.value).startswith("line "), caught.value


def test_map_whose_address_is_in_no_allocation():
    text = f"""{HEAD}.entry k(.param .align 64 .b8 map[128], .param .u64 out)
{{ .reg .b64 %d<4>; .reg .b32 %r<4>; .shared .align 128 .b8 tile[128];
mov.b64 %d1, map; cvta.param.u64 %d1, %d1; mov.u32 %r1, tile; mov.u32 %r2, 0;
cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%d1, {{%r2}}], [%r1];
ret; }}"""
    encoded = TensorMap.tiled("u32", 0, (32,), (), (32,)).with_address(0x5000).encode()
    out = np.arange(32, dtype=np.uint32)
    with pytest.raises(PtxError, match=r"line 7: .*address 0x5000 is outside global memory"):
        Module(text).launch("k", (1,), (1,), [encoded, out], engine="golden")
    assert (out == np.arange(32)).all()


def test_binary_text_is_refused():
    with pytest.raises(PtxError, match="is not UTF-8"):
        Module(b"\xff\xfe.version 8.0")


def test_damaged_texts_give_messages():
    """No text gives another exception than `PtxError`."""
    print("seed", SEED)
    rng = random.Random(SEED)
    texts = [
        Case.read(CASES / name).text for name in ("a08_dsmem_ring", "a15_math", "a01_tile_copy")
    ]
    refused = 0
    for _ in range(150):
        tokens = re.findall(r"\s+|[\w$%.:]+|.", rng.choice(texts))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(tokens))
            change = rng.randrange(4)
            if change == 0:
                del tokens[at : at + rng.randint(1, 40)]
            elif change == 1:
                tokens[at] = rng.choice(tokens)
            elif change == 2:
                tokens.insert(at, rng.choice(["{", "}", "[", "]", "@", "-1", "1.5", "%p1", "0x7"]))
            else:
                tokens = tokens[:at] + tokens[at:][: rng.randint(1, len(tokens))]
        try:
            kernels = Kernels("".join(tokens))
            for entry in kernels.entries:
                kernels.kernel(entry)
        except PtxError:
            refused += 1
    assert refused > 50
