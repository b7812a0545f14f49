"""Operands of requests at their limits: the last legal ones, the first illegal ones, messages."""

import struct
from dataclasses import replace

import numpy as np
import pytest

from golden import (
    AccessMode,
    Arch,
    ArrayMemory,
    BulkLoad,
    BulkStore,
    Cluster,
    DataType,
    Descriptor,
    DsmemCopy,
    ErrorCode,
    HashedMemory,
    Load,
    Override,
    Plan,
    Reduce,
    ReductionOp,
    Store,
    TensorMap,
    TmaError,
    advice,
    check,
    mbarrier,
    tensormap_replace,
)
from golden.arguments import map_of_arguments
from golden.arrays import array_layout
from golden.fields import short
from golden.mbarrier import Fault, Op

LATER = Arch.SM_100A
CTAS = 4
WINDOW = 1 << 17

MATRIX = TensorMap.tiled("u8", 0, (64, 64), (64,), (64, 8))
TENSOR = TensorMap.tiled("u8", 0, (64, 8, 4), (64, 512), (64, 8, 1))
WIDE_ROW = TensorMap.tiled("u8", 0, (256, 64), (256,), (128, 8))
WIDE = TensorMap.im2col(
    "u8", 0, (64, 5, 2), (64, 512), (-1,), (1,), 64, 4, swizzle="128B", wide=True, arch=LATER
)
"""W may start from -1 to 5."""


def wide(start=0, halo=0, offset=0, mode=AccessMode.IM2COL_W):
    operands = {"mode": mode, "w_halo": halo, "w_offset": offset}
    return Load(WIDE, (0, start, 0), **operands)


def pair(**options):
    return Load(MATRIX, (0, 0), cta_group=2, **options)


BULK, COPY, MASKED = BulkLoad(0, 0, 16), DsmemCopy(1, 0, 0, 16), BulkStore(0, 0, 16)
AFTER_END, LAST = "must be from 0 to 131056: 16 bytes in a window of 131072 bytes", WINDOW - 16

LEGAL = [
    wide(start=5),
    wide(halo=511, offset=31),
    wide(halo=31, offset=31, mode=AccessMode.IM2COL_W_128),
    replace(BULK, ignore_first=15),
    replace(BULK, ignore_last=15),
    replace(BULK, smem_address=LAST),
    replace(COPY, smem_address=LAST, dst_address=LAST),
    replace(MASKED, byte_mask=0),
    replace(MASKED, byte_mask=0xFFFF),
    pair(mbarrier_cta=0),
    pair(mbarrier_cta=1),
    pair(dst_cta=3, mbarrier_cta=2),
]


@pytest.mark.parametrize("request_", LEGAL)
def test_last_legal(request_):
    check(request_, arch=LATER, ctas=CTAS, smem_bytes=WINDOW)


ILLEGAL = [
    (wide(start=6), "coords[1] = 6: must be at most 5, the end of the bounding box"),
    (wide(halo=512), "w_halo = 512: must be from 0 to 511"),
    (wide(halo=-1), "w_halo = -1: must be from 0 to 511"),
    (wide(halo=32, mode=AccessMode.IM2COL_W_128), "w_halo = 32: must be from 0 to 31"),
    (wide(offset=32), "w_offset = 32: must be from 0 to 31"),
    (replace(BULK, ignore_first=16), "ignore_first = 16: must be from 0 to 15"),
    (replace(BULK, ignore_last=-1), "ignore_last = -1: must be from 0 to 15"),
    (
        replace(BULK, ignore_last=1, dst_cta=0),
        "ignore_last = 1: must be from 0 to 0 with cta_mask or dst_cta",
    ),
    (
        replace(BULK, ignore_first=1, cta_mask=1),
        "ignore_first = 1: must be from 0 to 0 with cta_mask or dst_cta",
    ),
    (replace(BULK, smem_address=LAST + 16), f"smem_address = 131072: {AFTER_END}"),
    (replace(COPY, dst_address=LAST + 16), f"dst_address = 131072: {AFTER_END}"),
    (replace(COPY, dst_address=8), "dst_address = 8: must be a multiple of 16"),
    (replace(BULK, gmem_address=8), "gmem_address = 0x8: must be a multiple of 16"),
    (replace(BULK, size=1 << 32), "size = 4294967296: must fit in 32 bits"),
    (replace(MASKED, byte_mask=1 << 16), "byte_mask = 65536: must fit in 16 bits"),
    (replace(MASKED, byte_mask=-1), "byte_mask = -1: must fit in 16 bits"),
    (pair(mbarrier_cta=2), "mbarrier_cta = 2: must be 0 or 1"),
    (pair(dst_cta=3, mbarrier_cta=0), "mbarrier_cta = 0: must be 3 or 2"),
    (pair(cta_mask=1, mbarrier_cta=4), "mbarrier_cta = 4: must be from 0 to 3: the cluster has 4"),
    (Load(MATRIX, (0, 0), cta_group=3), "cta_group = 3: must be 1 or 2"),
    (Load(MATRIX, (0, 0), dst_cta=4), "dst_cta = 4: must be from 0 to 3: the cluster has 4 CTAs"),
    (Load(MATRIX, (0, 0), cta_mask=16), "cta_mask = 0x10: must be from 0 to 0xf: the cluster"),
    (Load(MATRIX, (0,)), "len(coords) = 1: must be 2 for TILE with a rank-2 map"),
    (
        Load(TENSOR, (0, 0, 0), im2col_offsets=(1,)),
        "len(im2col_offsets) = 1: must be 0 for TILE with a rank-3 map",
    ),
    (Load(MATRIX, (0, 0), mbarrier=4), "mbarrier = 4: must be a multiple of 8"),
    (Store(MATRIX, (0, -1)), "coords[1] = -1: must not be negative in a store or reduction"),
]


@pytest.mark.parametrize(("request_", "text"), ILLEGAL, ids=[text for _, text in ILLEGAL])
def test_first_illegal(request_, text):
    with pytest.raises(TmaError) as caught:
        check(request_, arch=LATER, ctas=CTAS, smem_bytes=WINDOW)
    assert str(caught.value).startswith(text)


def test_directions_of_plans():
    smem, gmem = np.zeros(1024, np.uint8), HashedMemory()
    text = r"^this plan was made for stores: a load needs Plan\(\.\.\., store=False\)$"
    with pytest.raises(ValueError, match=text):
        Plan(MATRIX, store=True).load(gmem, smem, 0, (0, 0))
    text = r"^this plan was made for loads: a store needs Plan\(\.\.\., store=True\)$"
    with pytest.raises(ValueError, match=text):
        Plan(MATRIX).store(gmem, smem, 0, (0, 0))
    with pytest.raises(ValueError, match=text):
        Plan(MATRIX).reduce(ReductionOp.ADD, gmem, smem, 0, (0, 0))


def test_a_plan_without_a_halo_loads_the_box():
    plan, smem = Plan(WIDE, AccessMode.IM2COL_W, arch=LATER), np.full(8192, 1, np.uint8)
    memory = ArrayMemory(np.zeros(2048, np.uint8))
    assert plan.load(memory, smem, 0, (0, 0, 0)) == plan.load(memory, smem, 0, (0, 0, 0), (), 0, 0)
    assert smem[plan.footprint :].all()
    with_halo = plan.load(memory, smem, 0, (0, 0, 0), (), 2)
    assert with_halo == plan.bytes() + 2 * 64


@pytest.mark.parametrize(
    ("field", "value", "index", "dim"),
    [("box_dim", -1, 2, 2), ("global_dim", 1 << 33, 4, 4), ("rank", -1, None, 0)],
)
def test_an_edit_that_is_refused_names_the_dimension(field, value, index, dim):
    with pytest.raises(TmaError, match=f"{field} = {value}: must be from 0 to") as caught:
        tensormap_replace(bytes(128), field, value, index)
    error = caught.value
    assert (error.code, error.dim, error.value) == (ErrorCode.REPLACE, dim, value)


def test_operands_of_an_override_become_plain_integers():
    given = np.uint64(0x1000), (np.int8(64), np.int8(8)), (np.uint8(16),), np.uint8(1)
    override = Override(*given)
    values = (
        override.global_address,
        *override.global_dim,
        *override.lower_strides,
        override.upper_strides,
    )
    assert values == (0x1000, 64, 8, 16, 1)
    assert {type(value) for value in values} == {int}


@pytest.mark.parametrize(
    ("tensor_map", "mode", "text"),
    [
        (
            MATRIX,
            AccessMode.TILE_GATHER4,
            "mode = TILE_GATHER4 with a rank-2 TILE map: .tile::gather4 to .shared::cta needs ",
        ),
        (MATRIX, AccessMode.IM2COL, "mode = IM2COL with a rank-2 TILE map: must be the mode of"),
    ],
)
def test_a_mode_that_does_not_fit_is_shown_with_the_map(tensor_map, mode, text):
    with pytest.raises(TmaError) as caught:
        Plan(tensor_map, mode)
    assert str(caught.value).startswith(text)


def test_advice_about_padding_names_the_operation():
    narrow = TensorMap.tiled("u32", 0, (5, 8), (32,), (8, 8))
    store, reduction = Store(narrow, (0, 0)), Reduce(narrow, (0, 0))
    text = "global_dim[0] = 5 elements end at byte 20 of a row: the {} bytes 20 to 31 [ROW_PADDING]"
    for request, verb in (store, "store overwrites"), (reduction, "reduction changes"):
        assert [str(warning) for warning in advice(request)] == [text.format(verb)]


# Barriers


def fault(operation, *arguments, **options):
    with pytest.raises(TmaError) as caught:
        operation(*arguments, **options)
    error = caught.value
    return error.text, error.value, error.dim


V0, V1 = mbarrier.init(1), mbarrier.init(1, v1=True)
LOCK = 1 << 42


def test_faults_of_barriers():
    assert fault(mbarrier.update, V0, Op.ARRIVE, 2) == (
        "arrivals = 2: must be from 0 to 1, the pending arrivals", V0 | LOCK, Fault.OVER_ARRIVAL
    )  # fmt: skip
    assert fault(mbarrier.update, V0, Op.ARRIVE, 1 << 20) == (
        "count = 1048576: must be from 0 to 1048575", V0 | LOCK, Fault.COUNT
    )  # fmt: skip
    assert fault(mbarrier.update, V0 | LOCK, Op.ARRIVE) == (
        "lock = 1: must be 0: an earlier fault has locked the barrier", V0 | LOCK, Fault.LOCKED
    )  # fmt: skip
    assert fault(mbarrier.init, 512, v1=True) == (
        "count = 512: must be from 1 to 511", 512, Fault.COUNT
    )  # fmt: skip


def test_faults_of_layouts():
    reported = {"reports": True, "v1": True}
    assert fault(mbarrier.update, V0, Op.COMPLETE_TX, 0, **reported) == (
        "layout = 0: must be v1", V0 | LOCK, Fault.OPERATION
    )  # fmt: skip
    assert fault(mbarrier.report, V0, 1, v1=True) == (
        "layout = 0: must be v1", V0, Fault.OPERATION
    )  # fmt: skip
    assert fault(mbarrier.check_layout, V1, 2, v1=True) == (
        "layout = 2: must be 0 or 1", V1, Fault.OPERATION
    )  # fmt: skip
    assert fault(Cluster(HashedMemory()).mbarrier_init, 0, 1, v1=True) == (
        "layout = 1: must be v0: the unit has no other layout", 0, Fault.OPERATION
    )  # fmt: skip


def test_operations_of_a_cluster_pass_their_operands_on():
    cluster = Cluster(HashedMemory(), 2, smem_bytes=1024)
    cluster.mbarrier_init(8, 5, cta=1)
    cluster.mbarrier_arrive(8, 2, cta=1)
    cluster.mbarrier_arrive_drop(8, 2, cta=1)
    barrier = mbarrier.Barrier.decode(cluster.word(8, 1))
    assert (barrier.pending, barrier.expected) == (1, 3)
    assert cluster.mbarrier_arrive(8, 1, cta=1, issuer=0) == 0
    assert cluster.mbarrier_test_wait_parity(8, 0, cta=1)
    assert not cluster.smem[0].any()


def test_remote_stores_name_the_cta():
    cluster = Cluster(HashedMemory(), 2, smem_bytes=1024)
    with pytest.raises(TmaError, match=r"^cta = 2: must be from 0 to 1: the cluster has 2 CTAs"):
        cluster.st_async([(0, bytes(4))], 8, cta=2)
    with pytest.raises(TmaError, match=r"^address = 1024: must be from 0 to 1020: 4 bytes in a"):
        cluster.red_async([(1024, 1)], DataType.UINT32, ReductionOp.ADD, 8, cta=1)


def test_bytes_that_no_arrival_expects():
    cluster = Cluster(ArrayMemory(np.zeros(64, np.uint8)), smem_bytes=1024)
    cluster.mbarrier_init(0, 1)
    cluster.mbarrier_arrive_expect_tx(0, 32)
    text = (
        "^mbarrier 0x0 of CTA 0 got 32 bytes more than it expects: the phase cannot complete; on "
        r"silicon it may complete before all bytes have come \[EXPECT_TX\]$"
    )
    with pytest.warns(UserWarning, match=text):
        cluster.issue(BulkLoad(0, 128, 64))


# Tensor maps


def tiled(**changes):
    given = {"data_type": "u8", "global_address": 0, "global_dim": (64, 64)}
    given |= {"global_strides": (64,), "box_dim": (64, 8)}
    return TensorMap.tiled(**given | changes)


def im2col(**changes):
    given = {"data_type": "u8", "global_address": 0, "global_dim": (256, 64, 4)}
    given |= {"global_strides": (256, 1 << 14), "lower_corner": (0,), "upper_corner": (0,)}
    given |= {"channels_per_pixel": 16, "pixels_per_column": 8}
    return TensorMap.im2col(**given | changes)


@pytest.mark.parametrize(
    ("make", "text", "value", "dim"),
    [
        (
            lambda: tiled(global_address=1 << 64),
            "global_address = 0x10000000000000000: must be from 0 to 2**64 - 1",
            1 << 64,
            0,
        ),
        (
            lambda: tiled(global_address=(1 << 64) - 1),
            "global_address = 0xffffffffffffffff: must be a multiple of 16",
            (1 << 64) - 1,
            0,
        ),
        (
            lambda: tiled(global_strides=(24,)),
            "global_strides[0] = 24: must be a multiple of",
            24,
            1,
        ),
        (lambda: tiled(global_strides=(2.0,)), "global_strides[0] = 2.0: must be an integer", 0, 1),
        (lambda: tiled(box_dim=(64, 257)), "box_dim[1] = 257: must be from 1 to 256", 257, 1),
        (lambda: tiled(box_dim=64), "box_dim = 64: must be a sequence of integers", 0, 0),
        (lambda: tiled(box_dim=(64,)), "len(box_dim) = 1: must be 2 [LENGTH", 1, 0),
        (
            lambda: im2col(channels_per_pixel=257),
            "channels_per_pixel = 257: must be from 1 to 256",
            257,
            0,
        ),
        (
            lambda: im2col(pixels_per_column=1025),
            "pixels_per_column = 1025: must be from 1 to 1024",
            1025,
            0,
        ),
        (
            lambda: im2col(lower_corner=(-32769,)),
            "lower_corner[0] = -32769: must be from -32768 to 32767 with rank 3",
            -32769,
            1,
        ),
        (
            lambda: im2col(wide=True, swizzle="128B", upper_corner=(32768,), arch=LATER),
            "upper_corner[0] = 32768: must be from -32768 to 32767 of a wide map",
            32768,
            1,
        ),
        (
            lambda: tiled(arch="SM_90A"),
            "arch = 'SM_90A': must be Arch.SM_90A, Arch.SM_100A, ",
            0,
            0,
        ),
        (lambda: TensorMap.decode(5), "data = 5: must be bytes: bytes.fromhex turns ", 0, 0),
    ],
)
def test_a_map_that_is_refused(make, text, value, dim):
    with pytest.raises(TmaError) as caught:
        make()
    error = caught.value
    assert str(error).startswith(text)
    assert (error.value, error.dim) == (value, dim)


def test_a_halo_adds_rows_in_the_wide_modes_only():
    assert Plan(MATRIX).rows(3) == Plan(MATRIX).rows(0) == 8
    assert Plan(WIDE, AccessMode.IM2COL_W, arch=LATER).rows(3) == 4 + 3


def test_strides_beyond_the_rank_may_be_anything():
    tensor_map = TensorMap.tiled("u8", 0, (16, 8, 4), (256, 2048), (16, 8, 1), interleave="32B")
    words = list(struct.unpack("<16I", tensor_map.encode()[:64]))
    words[5] = 1  # 16 bytes, which are no multiple of 32
    check(Load(Descriptor(tuple(words)), (0, 0, 0)))
    words[4] = 1
    with pytest.raises(TmaError, match=r"global_strides\[1\] = 16: must be a multiple of 32"):
        check(Load(Descriptor(tuple(words)), (0, 0, 0)))


def test_codes_of_swizzles_that_are_not_assigned():
    """Later architectures have more codes; an atom without a swizzle is none of them."""
    words = list(struct.unpack("<16I", MATRIX.encode()[:64]))
    words[2] |= 2 << 19
    with pytest.raises(TmaError, match="code not assigned: must be from 0 to 7 on SM_100A"):
        check(Load(Descriptor(tuple(words)), (0, 0)), arch=LATER)


def test_elements_of_a_row():
    interleaved = TensorMap.tiled("u8", 0, (16, 8, 4), (256, 2048), (16, 8, 1), interleave="32B")
    assert [Plan(each).row_elements for each in (MATRIX, WIDE_ROW, interleaved)] == [64, 128, 1]


# Arguments and arrays


def test_arrays_with_axes_of_one_element():
    _, _, extents, strides = array_layout(np.zeros((2, 1, 3, 12), np.float32), None)
    assert extents == (12, 3, 1, 2)
    assert strides == (48, 160, 144)  # 144 bytes are three rows; 160 is the next multiple of 32
    _, _, _, strides = array_layout(np.zeros((1, 2, 3, 8), np.float32), None)
    assert strides == (32, 96, 192)


def test_a_type_of_another_size_is_no_type_of_the_array():
    text = r"^data_type = UINT8: must have elements of 4 bytes, as the array has \[ARRAY"
    with pytest.raises(TmaError, match=text):
        array_layout(np.zeros((4, 8), np.float32), "u8")


def test_names_of_golden_are_arguments_too():
    given = {"data_type": "u8", "global_dim": [64, 64], "global_strides": [64], "box_dim": [64, 8]}
    assert map_of_arguments({**given, "oob_128k": False}) == map_of_arguments(given)
    assert map_of_arguments(given) == MATRIX
    with pytest.raises(ValueError, match="unknown argument 'oob_12k': the nearest is oob_128k"):
        map_of_arguments({**given, "oob_12k": 1})


def test_a_long_text_is_cut_to_60_characters():
    assert short("x" * 60) == "x" * 60
    assert short("x" * 61) == "x" * 57 + "..."
    assert short(" a \n b ") == "a b"
