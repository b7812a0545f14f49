"""Features that PTX has after Hopper: their effects, and their rules by architecture.

``tests/test_ptx_coverage.py`` has one case of each form on each architecture.
"""

from dataclasses import replace

import numpy as np
import pytest

from golden import (
    AccessMode,
    ApplyPriority,
    Arch,
    ArrayMemory,
    BulkApplyPriority,
    BulkLoad,
    BulkReduce,
    BulkStore,
    Cluster,
    Completion,
    DataType,
    DsmemCopy,
    DsmemReduce,
    ErrorCode,
    Feature,
    HashedMemory,
    Load,
    Ordering,
    Override,
    Prefetch,
    Reduce,
    ReductionOp,
    ReportMechanism,
    Store,
    TensorMap,
    TmaError,
    check,
    execute,
    mbarrier,
)
from golden.mbarrier import Op

RUBIN = Arch.SM_107A
WINDOW = 128 * 1024
MATRIX = TensorMap.tiled("u8", 0, (64, 64), (64,), (64, 8), swizzle="64B")


def numbered(size=2 * WINDOW, base=0):
    """Return a memory in which each 16-bit word is its number."""
    return ArrayMemory(np.arange(size // 2, dtype=np.uint16), base)


def refusal(request, arch=RUBIN, **options):
    with pytest.raises(TmaError) as caught:
        check(request, arch=arch, **options)
    return caught.value


# Overrides


def test_an_address_replaces_that_of_the_map():
    gmem, smem = numbered(), [np.zeros(4096, np.uint8) for _ in range(2)]
    moved = Load(MATRIX, (0, 3), smem_address=512, override=Override(0x2000))
    plain = Load(MATRIX.with_address(0x2000), (0, 3), smem_address=512)
    assert execute(moved, gmem, smem[:1], arch=RUBIN) == execute(plain, gmem, smem[1:])
    assert smem[0].any()
    assert np.array_equal(smem[0], smem[1])


def test_extents_and_strides_replace_those_of_the_map():
    """8 bits of an extent, 32 of a stride's low part, and 4 of its high part."""
    override = Override(0x1000, (20, 3), (0x40,), 0)
    request = Load(MATRIX, (0, 0), override=override)
    other = replace(MATRIX, global_address=0x1000, global_dim=(20, 3), global_strides=(0x400,))
    gmem, smem = numbered(), [np.full(4096, 0xEE, np.uint8) for _ in range(2)]
    assert execute(request, gmem, smem[:1], arch=RUBIN)[0].bytes == 512
    execute(Load(other, (0, 0)), gmem, smem[1:])
    assert np.array_equal(smem[0], smem[1])
    assert Override(0, (1, 1, 1), (5, 0xFFFFFFFF), 0xA3).global_strides == (
        (3 << 32 | 5) << 4,
        (0xA << 32 | 0xFFFFFFFF) << 4,
    )


def test_stores_reductions_and_pairs_override_too():
    override = Override(0x800, (64, 2), (0x10,))
    smem = [np.full(4096, 1, np.uint8)]
    for request, value in (
        (Store(MATRIX, (0, 0), override=override), 1),
        (Reduce(replace(MATRIX, data_type="u32", box_dim=(16, 8)), (0, 0), override=override), 3),
    ):
        gmem = ArrayMemory(np.full(2 * WINDOW, 2, np.uint8))
        execute(request, gmem, smem, arch=RUBIN)
        rows = gmem.bytes[0x800 : 0x800 + 4 * 256].reshape(4, 256)
        width = 64
        assert (rows[0, :width] == value).all()
        assert (gmem.bytes[:0x800] == 2).all()
        assert (rows[2:] == 2).all()


@pytest.mark.parametrize(
    ("override", "options", "text"),
    [
        (Override(8), {}, "global_address = 0x8: must be a multiple of 16"),
        (Override(0, (64,)), {}, "len(global_dim) = 1: must be 2, the rank of the map"),
        (
            Override(0, (64, 8), (4,)),
            {"coords": (0, 1)},
            "coords[1] = 1: must be 0 with an overrid",
        ),
        (
            Override(0, (64, 8), (4,)),
            {"cta_mask": 1},
            "multicast_32b = False: must be True with an override of extents",
        ),
    ],
)
def test_rules_of_overrides(override, options, text):
    error = refusal(replace(Load(MATRIX, (0, 0), override=override), **options))
    assert text in str(error)
    check(Load(MATRIX, (0, 8), cta_mask=1, override=Override(0)), arch=RUBIN)


def test_an_override_of_extents_is_for_tiles():
    image = TensorMap.im2col("u8", 0, (64, 8, 2), (64, 512), (0,), (0,), 64, 8)
    check(Load(image, (0, 0, 0), override=Override(0x40)), arch=RUBIN)
    error = refusal(Load(image, (0, 0, 0), override=Override(0, (64, 8, 2), (4, 32))))
    assert str(error).startswith(
        "mode = IM2COL: must be TILE with an override of extents [OVERRIDE"
    )


@pytest.mark.parametrize(
    ("operands", "text"),
    [
        ((1 << 64,), "global_address"),
        ((0, (0, 1), (1,)), r"global_dim\[0\] = 0: must be from 1 to 255"),
        ((0, (256, 1), (1,)), r"global_dim\[0\] = 256"),
        ((0, (1, 1), ()), r"len\(lower_strides\) = 0: must be 1"),
        ((0, (1, 1), (1 << 32,)), r"lower_strides\[0\]"),
        ((0, (1, 1), (1,), 16), "upper_strides = 16: must be from 0 to 15"),
        ((0, (), (1,)), r"len\(lower_strides\) = 1: must be 0"),
        ((0, 5), "global_dim = 5: must be a sequence"),
    ],
)
def test_operands_of_overrides(operands, text):
    with pytest.raises(TmaError, match=text):
        Override(*operands)


def test_128_kib_behind_an_override_must_exist():
    """PTX leaves it undefined; a prefetch of missing memory is ignored."""
    smem = [np.zeros(4096, np.uint8)]
    request = Load(MATRIX, (0, 0), override=Override(0x100))
    execute(request, numbered(0x100 + WINDOW), smem, arch=RUBIN)
    with pytest.raises(TmaError, match="GMEM_FAULT"):
        execute(request, numbered(0x100 + WINDOW - 16), smem, arch=RUBIN)
    prefetch = Prefetch(MATRIX, (0, 0), override=Override(0x100))
    assert execute(prefetch, numbered(WINDOW), smem, arch=RUBIN) == []


# Reports


def reporting(element, value, report, *, at=0, width=4, request=None):
    """Return whether a load of 256 bytes reports if bytes ``at`` have ``value``."""
    data = np.ones(512, np.uint8)
    data[at : at + width] = np.frombuffer(value.to_bytes(width, "little"), np.uint8)
    tensor_map = TensorMap.tiled(element, 0, (16 * 128 // 8,), (), (16,))
    request = request or Load(tensor_map, (0,), report=report)
    smem = [np.zeros(1024, np.uint8)]
    (completion,) = execute(request, ArrayMemory(data), smem, arch=RUBIN)
    return completion.reports


@pytest.mark.parametrize(
    ("report", "value", "width"),
    [
        (ReportMechanism.PER_16BYTES_80000000, 0x80000000, 4),
        (ReportMechanism.PER_16BYTES_8000, 0x8000, 2),
        (ReportMechanism.PER_16BYTES_80, 0x80, 1),
        (ReportMechanism.PER_16BYTES_8, 0x18, 1),
    ],
)
def test_the_first_element_of_16_bytes_is_inspected(report, value, width):
    bulk = BulkLoad(16, 0, 32, report=report)
    for request in (None, bulk):
        start = 16 if request else 0
        for at, found in ((start, True), (start + 8, False)):
            load = {"request": request, "at": at, "width": width}
            assert reporting("u8", value, report, **load) is (found and (not request or at >= 16))
        assert not reporting("u8", value ^ 1, report, at=start, width=width, request=request)
    assert not reporting("u8", value, ReportMechanism.DISABLED, width=width)


def test_each_byte_is_inspected_for_ff():
    for at in range(16):
        assert reporting("u8", 0xFF, ReportMechanism.PER_ELEMENT_FF, at=at, width=1)
    assert not reporting("u8", 0xFF, ReportMechanism.PER_ELEMENT_FF, at=16, width=1)


def test_fill_is_not_inspected():
    tensor_map = TensorMap.tiled("u8", 0, (16,), (), (32,))
    gmem = ArrayMemory(np.full(64, 0xFF, np.uint8))
    gmem.bytes[:16] = 0
    request = Load(tensor_map, (0,), report=ReportMechanism.PER_ELEMENT_FF)
    assert not execute(request, gmem, [np.zeros(256, np.uint8)], arch=RUBIN)[0].reports
    outside = replace(request, coords=(64,))
    assert not execute(outside, gmem, [np.zeros(256, np.uint8)], arch=RUBIN)[0].reports


@pytest.mark.parametrize("valid", [True, False])
def test_a_report_stops_the_conditional_phase(valid):
    gmem = ArrayMemory(np.full(4096, 1 if valid else 0xFF, np.uint8))
    cluster = Cluster(gmem, 2, smem_bytes=4096, arch=RUBIN)
    for cta in range(2):
        cluster.mbarrier_init(0, 1, v1=True, cta=cta)
        cluster.mbarrier_arrive_expect_tx(0, 512, cta=cta)
    report = ReportMechanism.PER_ELEMENT_FF
    tensor_map = TensorMap.tiled("u8", 0, (64, 64), (64,), (64, 8))
    request = Load(tensor_map, (0, 0), smem_address=1024, cta_mask=3, report=report)
    assert cluster.issue(request) == [Completion(cta, 0, 512, not valid) for cta in range(2)]
    for cta in range(2):
        assert cluster.mbarrier_test_wait_parity(0, 0, cta=cta)
        conditional = cluster.mbarrier_test_wait_parity(0, 0, conditional=True, cta=cta)
        assert conditional is valid
        assert mbarrier.reported(cluster.word(0, cta), v1=True)[0] == (not valid)
        assert cluster.mbarrier_check_layout(0, 1, cta=cta)
        assert not cluster.mbarrier_check_layout(0, 0, cta=cta)


def test_a_report_needs_layout_v1():
    cluster = Cluster(ArrayMemory(np.full(64, 0xFF, np.uint8)), smem_bytes=4096, arch=RUBIN)
    cluster.mbarrier_init(0, 1)
    cluster.mbarrier_arrive_expect_tx(0, 64)
    request = BulkLoad(0, 1024, 64, report=ReportMechanism.PER_ELEMENT_FF)
    with pytest.raises(TmaError, match=r"layout = 0: must be v1 \[MBAR_FAULT"):
        cluster.issue(request)
    with pytest.raises(TmaError, match=r"report = PER_ELEMENT_FF: must be DISABLED with ignore_l"):
        cluster.issue(replace(request, ignore_last=1))
    with pytest.raises(TmaError, match="layout = 2: must be 0 or 1"):
        cluster.mbarrier_check_layout(0, 2)


# Clusters


def test_masks_of_32_bits():
    """A cluster of more than 16 CTAs is a choice: PTX only says that the mask has 32 bits."""
    cluster = Cluster(numbered(), 24, smem_bytes=2048, arch=RUBIN)
    for cta in range(24):
        cluster.mbarrier_init(0, 1, cta=cta)
    mask = 1 << 20 | 1 << 3
    cluster.mbarrier_update(Op.ARRIVE_EXPECT_TX, 0, 128, cta_mask=mask)
    wide = BulkLoad(0x100, 1024, 128, cta_mask=mask, multicast_32b=True)
    assert [c.cta for c in cluster.issue(wide)] == [3, 20]
    assert all(cluster.mbarrier_test_wait_parity(0, 0, cta=cta) for cta in (3, 20))
    assert not cluster.mbarrier_test_wait_parity(0, 0, cta=0)
    assert cluster.smem[20][1024:1152].any()
    error = refusal(replace(wide, multicast_32b=False), ctas=24)
    assert (error.code, error.limit) == (ErrorCode.MASK, "must have 16 bits without multicast_32b")
    error = refusal(replace(wide, cta_mask=None), ctas=24)
    assert str(error).startswith("cta_mask = None: must not be None with multicast_32b")
    with pytest.raises(TmaError, match="ctas = 17: must be from 1 to 16"):
        Cluster(HashedMemory(), 17)


def test_barrier_operations_of_several_ctas():
    cluster = Cluster(HashedMemory(), 4, smem_bytes=1024, arch=RUBIN)
    for cta in range(4):
        cluster.mbarrier_init(0, 2, cta=cta)
    assert cluster.mbarrier_update(Op.ARRIVE, 0, 1, cta_mask=0b1010) == 0
    pending = [cluster.mbarrier_pending_count(cluster.word(0, cta)) for cta in range(4)]
    assert pending == [2, 1, 2, 1]
    for mask, op, text in (
        (16, Op.ARRIVE, "cta_mask = 0x10: must be from 0 to 0xf"),
        (1, Op.ARRIVE_NO_COMPLETE, "must not be a noComplete operation"),
    ):
        with pytest.raises(TmaError, match=text):
            cluster.mbarrier_update(op, 0, 1, cta_mask=mask)


# Qualifiers without an effect on data


def test_orderings():
    for request, most in (
        (BulkLoad(0, 0, 16), Ordering.RELAXED_SYS),
        (BulkStore(0, 0, 16), Ordering.RELAXED_SYS),
        (DsmemCopy(1, 0, 0, 16), Ordering.RELAXED_CLUSTER),
        (BulkReduce(0, 0, 16, DataType.UINT32, ReductionOp.ADD), Ordering.RELAXED_SYS),
        (DsmemReduce(1, 0, 0, 16), Ordering.RELAXED_CLUSTER),
    ):
        reduces = isinstance(request, BulkReduce | DsmemReduce)
        for ordering in Ordering:
            given = replace(request, ordering=ordering)
            if ordering > most or (reduces and ordering is Ordering.WEAK):
                error = refusal(given, Arch.SM_90A, ctas=2)
                assert error.code is ErrorCode.MAP_MODE
                assert str(error).startswith(f"ordering = {ordering.name}: must be ")
                continue
            check(given, ctas=2, arch=Arch.SM_90A)
            if reduces:
                check(given, ctas=2, arch=Arch.SM_120A)
            else:
                assert "not SM_120A" in str(refusal(given, Arch.SM_120A, ctas=2))


@pytest.mark.parametrize(
    ("kind", "op", "noftz", "text"),
    [
        ("FLOAT16", "ADD", True, None),
        ("BFLOAT16", "ADD", None, None),
        ("FLOAT32", "ADD", True, None),
        ("FLOAT32", "ADD", False, None),
        ("UINT32", "ADD", False, None),
        ("FLOAT16", "ADD", False, "noftz = False for ADD of FLOAT16: must be True"),
        ("FLOAT16", "MIN", True, "is allowed in additions of f16, bf16 and f32 only"),
        ("FLOAT64", "ADD", True, "noftz = True for ADD of FLOAT64: is allowed in additions"),
    ],
)
def test_noftz(kind, op, noftz, text):
    request = BulkReduce(0, 0, 16, DataType[kind], ReductionOp[op], noftz=noftz)
    if text is None:
        check(request)
    else:
        error = refusal(request, Arch.SM_90A)
        assert error.code is ErrorCode.RED_TYPE
        assert text in str(error)


def test_priorities_join_a_bulk_group():
    cluster = Cluster(HashedMemory(), arch=RUBIN)
    groups = cluster.groups()
    for request in ApplyPriority(MATRIX, (0, 0)), BulkApplyPriority(0, 64):
        before = groups.issue()
        assert cluster.issue(request) == []
        assert groups.issue() == before + 2
    error = refusal(BulkApplyPriority(0, 64), Arch.SM_100A)
    assert str(error).startswith(
        "request = BulkApplyPriority: applypriority.async.bulk needs SM_107"
    )
    assert refusal(BulkApplyPriority(8, 64)).code is ErrorCode.BULK_ALIGN


# Rules by architecture


def test_consumer_parts_have_the_modes_for_their_own_cta_only():
    four = TensorMap.tiled("u8", 0, (64, 64), (64,), (64, 1))
    gather = Load(four, (0, 1, 2, 3, 4), AccessMode.TILE_GATHER4)
    packed = TensorMap.tiled("16u4_align8b", 0, (64, 8), (32,), (64, 2), arch=Arch.SM_120A)
    atoms = TensorMap.tiled(
        "u8", 0, (128, 8), (128,), (128, 2), swizzle="128B_ATOM_64B", arch=Arch.SM_120A
    )
    gmem, smem = numbered(), [np.zeros(2048, np.uint8) for _ in range(2)]
    for load in gather, Load(packed, (0, 0)), Load(atoms, (0, 0)):
        execute(load, gmem, smem, arch=Arch.SM_120A)
        for where in {"dst_cta": 0}, {"cta_mask": 3}:
            execute(replace(load, **where), gmem, smem, arch=Arch.SM_100A)
            with pytest.raises(TmaError, match=r"\.shared::cluster.* not SM_120A") as caught:
                execute(replace(load, **where), gmem, smem, arch=Arch.SM_120A)
            assert caught.value.code is ErrorCode.MAP_MODE
    prefetch = Prefetch(four, gather.coords, gather.mode)
    assert "or L2 needs SM_100A" in str(refusal(prefetch, Arch.SM_120A))
    scatter = Store(four, gather.coords, AccessMode.TILE_SCATTER4)
    assert ".tile::scatter4 needs" in str(refusal(scatter, Arch.SM_120A))
    assert ".cta_group::2 needs" in str(refusal(Load(MATRIX, (0, 0), cta_group=2), Arch.SM_120A))


def test_scatter4_of_rows_in_front_of_the_tensor():
    gmem = ArrayMemory(np.zeros(4096, np.uint8))
    smem = [np.arange(1, 257).astype(np.uint8)]
    four = TensorMap.tiled("u8", 0, (64, 64), (64,), (64, 1))
    request = Store(four, (-16, -1, 2, -(1 << 31), 0), AccessMode.TILE_SCATTER4)
    execute(request, gmem, smem, arch=RUBIN)
    rows = gmem.bytes.reshape(64, 64)
    assert np.array_equal(rows[2, :48], smem[0][64 + 16 : 128])
    assert np.array_equal(rows[0, :48], smem[0][192 + 16 : 256])
    assert np.count_nonzero(gmem.bytes) == np.count_nonzero(rows[[0, 2], :48])
    error = refusal(request, Arch.SM_100A)
    assert error.code is ErrorCode.COORD_NEG
    assert "a negative coordinate of .tile::scatter4 needs SM_107A, not SM_100A" in str(error)


def test_rows_of_64_elements_of_6_bits():
    """They are for stores on two architectures, with addresses at multiples of 16 bytes."""
    shape = 16, (128, 4), (112,), (64, 2)
    for arch in Arch.SM_103A, RUBIN:
        short = TensorMap.tiled("16u6_align16b", *shape, swizzle="64B", arch=arch)
        check(Store(short, (0, 0)), arch=arch)
        error = refusal(Load(short, (0, 0)), arch)
        assert (error.code, error.detail) == (ErrorCode.MAP_FIELD, ErrorCode.SUB_BYTE)
    check(Store(short, (64, 0)), arch=Arch.SM_103A)
    assert "at a multiple of 64 needs SM_103A, not SM_107A" in str(refusal(Store(short, (64, 0))))
    with pytest.raises(TmaError, match=r"\.b6p2x16 with rows of 64 elements needs|must be 128"):
        TensorMap.tiled("16u6_align16b", *shape, arch=Arch.SM_100A)
    assert Feature.B6P2X16_STORE in RUBIN.features


def test_names_of_architectures():
    assert Arch.named("sm_107a") is RUBIN
    assert [arch.name for arch in Arch.members()] == sorted(
        (arch.name for arch in Arch.members()), key=lambda name: int(name[3:-1])
    )
    with pytest.raises(
        ValueError, match="sm_80: must be SM_90A, SM_100A, SM_103A, SM_107A or SM_1"
    ):
        Arch.named("sm_80")
    assert repr(RUBIN) == "Arch.SM_107A"
