"""Every instruction form of the surveyed kernels is accepted, and others are refused by line.

``forms.txt`` has the forms of 83 kernels: those of the recorded launches, and of published
libraries. The operands are written as nvcc and Triton write them.
"""

import re
from pathlib import Path

import pytest

from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.kernel import Kernels

FORMS = Path(__file__).with_name("forms.txt").read_text().split()

DECLARED = """
.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<140>; .reg .b64 %d<8>; .reg .f32 %f<140>;
.reg .f64 %e<8>; .shared .align 128 .b8 tile[1024]; .local .align 16 .b8 stack[64];
"""

BITS = {
    "pred": "p", "f32": "f", "f64": "e", "tf32": "r", "f16x2": "r", "bf16x2": "r",
    "e4m3x2": "h", "e5m2x2": "h", "f16": "h", "bf16": "h", "b8": "h", "u8": "h",
}  # fmt: skip

WIDTHS = {"16": "h", "32": "r", "64": "d", "24": "d"}

TERNARY = ("mad", "fma", "bfe", "shf", "prmt", "lop3")
UNARY = ("mov", "neg", "abs", "not", "brev", "popc", "clz", "bfind", "cvta", "ex2", "lg2", "rcp",
         "rsqrt", "sqrt", "sin", "cos", "tanh", "cvt")  # fmt: skip


def register(kind, number):
    """Return the name of a register for a PTX type."""
    letter = BITS.get(kind) or WIDTHS[re.sub(r"\D", "", kind)]
    return f"%{letter}{number}"


def listed(kind, count, first=1):
    return "{" + ", ".join(register(kind, first + index) for index in range(count)) + "}"


def vector(parts, kind):
    count = next((int(part[1]) for part in parts if re.fullmatch(r"v\d", part)), 1)
    return listed(kind, count) if count > 1 else register(kind, 1)


def tensor_copy(form, parts):
    """Return the operands of a bulk or tensor copy."""
    hint = ", %d3" if "L2::cache_hint" in parts else ""
    multicast = ", %h1" if "multicast::cluster" in parts else ""
    dimensions = next((int(part[0]) for part in parts if re.fullmatch(r"\dd", part)), 0)
    if not dimensions:
        if "prefetch" in parts:
            return "[%d1], %r1"
        barrier = ", [%r4]" if "mbarrier::complete_tx::bytes" in parts else ""
        source = "[%d1]" if ".global.mbarrier" in form else "[%r1]"
        target = "[%r2]" if barrier else "[%d2]"
        return f"{target}, {source}, %r3{barrier}{multicast}{hint}"
    place = "{" + ", ".join(f"%r{10 + axis}" for axis in range(dimensions)) + "}"
    tensor = f"[%d1, {place}]"
    if "prefetch" in parts:
        return tensor
    if "mbarrier::complete_tx::bytes" not in parts:
        return f"{tensor}, [%r1]{hint}"
    offsets = ", " + listed("b16", dimensions - 2) if "im2col" in parts else ""
    return f"[%r1], {tensor}, [%r2]{offsets}{multicast}{hint}"


def matrix_product(parts):
    """Return the operands of ``wgmma.mma_async``."""
    n = int(re.search(r"n(\d+)", next(p for p in parts if p.startswith("m64")))[1])
    kind = next(p for p in parts if p in ("f32", "f16", "s32"))
    sums = listed("f32" if kind == "f32" else "b32", n // (4 if kind == "f16" else 2))
    if kind == "s32":
        return f"{sums}, %d1, %d2, %p1"
    transposed = ", 0, 0" if parts[-1] in ("f16", "bf16") else ""
    sparse = ", %r1, 0" if "sp" in parts else ""
    return f"{sums}, %d1, %d2{sparse}, %p1, 1, 1{transposed}"


def fixed_operands(form, parts):
    """Return the operands of forms that name no type of them; None of others."""
    name = parts[0]
    table = {
        "bra": "END", "ret": "", "elect": "%r1|%p1, -1", "griddepcontrol": "",
        "fence": "[%d1], 128" if "tensormap::generic.acquire" in form else "", "membar": "",
        "nanosleep": "%r1", "setmaxnreg": "40", "createpolicy": "%d1, 0f3F800000",
        "barrier": "" if "cluster" in parts else "1", "prefetch": "[%d1]",
        "stmatrix": None, "ldmatrix": None, "redux": "%r1, %r2, -1", "vote": "%r1, %p1, -1",
        "shfl": "%r1|%p1, %r2, 1, 31, -1", "bfi": "%r1, %r2, %r3, 4, 5",
    }  # fmt: skip
    if name in ("ldmatrix", "stmatrix"):
        values = listed("b32", next(int(part[1]) for part in parts if re.fullmatch(r"x\d", part)))
        return f"{values}, [%r9]" if name == "ldmatrix" else f"[%r9], {values}"
    if name == "bar":
        return {"sync": "1, 128", "arrive": "1, 128", "warp": "-1"}[parts[1]]
    if name == "mapa":
        return "%d1, %d2, %r1" if parts[-1] == "u64" else "%r1, %r2, %r3"
    if name == "cp":
        if "commit_group" in parts:
            return ""
        return "0" if "wait_group" in parts else tensor_copy(form, parts)
    if name == "wgmma":
        if parts[1] == "mma_async":
            return matrix_product(parts)
        return "0" if parts[1] == "wait_group" else ""
    if name == "mma":
        return f"{listed('f32', 4)}, {listed('b32', 4)}, {listed('b32', 2)}, {listed('f32', 4)}"
    if name == "tensormap":
        if parts[1] == "cp_fenceproxy":
            return "[%d1], [%r1], 128"
        base = "[%d1]" if "global" in parts else "[%r1]"
        index = (
            "1, "
            if parts[3] in ("box_dim", "global_dim", "global_stride", "element_stride")
            else ""
        )
        immediate = parts[3] in ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode")
        return f"{base}, {index}{'1' if immediate else register(parts[-1], 2)}"
    if name == "mbarrier":
        return mbarrier(parts)
    return table.get(name)


def mbarrier(parts):
    """Return the operands of an mbarrier operation."""
    name = parts[1]
    remote = "shared::cluster" in parts
    if name in ("arrive", "arrive_drop"):
        count = ", 5" if {"expect_tx", "noComplete"} & set(parts) else ""
        return f"{'_' if remote else '%d1'}, [%r1]{count}"
    if name in ("try_wait", "test_wait"):
        return f"%p1, [%r1], {'%r2' if 'parity' in parts else '%d1'}"
    return {"init": "[%r1], 1", "inval": "[%r1]", "expect_tx": "[%r1], 64",
            "pending_count": "%r1, %d1"}[name]  # fmt: skip


def memory(parts):
    """Return the operands of ``ld``, ``st``, ``atom`` and ``red``."""
    kind, name = parts[-1], parts[0]
    base = {"shared": "[%r9+4]", "param": "[argument]", "local": "[stack+4]"}.get(
        parts[1].split("::")[0], "[%d7+8]"
    )
    if "param" in parts:
        base = "[argument+8]"
    if "async" in parts:
        return f"[%r9], {vector(parts, kind)}, [%r10]"
    if name == "ld":
        return f"{vector(parts, kind)}, {base}"
    if name == "st":
        return f"{base}, {vector(parts, kind)}"
    return (
        f"{base}, {register(kind, 1)}"
        if name == "red"
        else (f"{register(kind, 2)}, {base}, {register(kind, 1)}")
    )


def operands_of(form):
    """Return operands for a form."""
    parts = form.split(".")
    name, kind = parts[0], parts[-1]
    found = fixed_operands(form, parts)
    if found is not None:
        return found
    if name in ("ld", "st", "atom", "red"):
        return memory(parts)
    if name == "cvt":
        target = parts[-2]
        pairs = target.endswith("x2") and kind == "f32"
        second = f", {register(kind, 3)}" if pairs else ""
        return f"{register(target, 1)}, {register(kind, 2)}{second}"
    if name == "setp":
        return f"%p1, {register(kind, 1)}, {register(kind, 2)}"
    if name == "selp":
        return f"{register(kind, 1)}, {register(kind, 2)}, {register(kind, 3)}, %p1"
    if name in ("popc", "bfind", "clz"):
        return f"%r1, {register(kind, 2)}"
    if name in ("shl", "shr"):
        return f"{register(kind, 1)}, {register(kind, 2)}, %r3"
    count = 2 + (name not in UNARY) + (name in TERNARY)
    kinds = [kind] * count
    if "wide" in parts:
        kinds[0] = f"b{2 * int(kind[1:])}"
    return ", ".join(register(each, 1 + index) for index, each in enumerate(kinds))


def compiled(text):
    entry = f".entry k(.param .align 64 .b8 argument[256])\n{{{DECLARED}\n{text}\nEND: ret;\n}}"
    return Kernels(f".version 8.7\n.target sm_90a\n.address_size 64\n{entry}\n").kernel("k")


@pytest.mark.parametrize("form", FORMS)
def test_form_is_known(form):
    kernel = compiled(f"{form} {operands_of(form)};")
    assert len(kernel.steps) == 2


def test_survey_has_all_forms():
    assert len(FORMS) == len(set(FORMS)) == 382


def test_all_unknown_forms_are_listed():
    text = "add.s32 %r1, %r2, %r3;\ntcgen05.wait %r1;\nadd.rn.f16 %r1, %r2, %r3;\nfoo.b32 %r1, %r2;"
    with pytest.raises(PtxError) as caught:
        compiled(text)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["line 10", "line 12"]
