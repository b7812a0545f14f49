"""Clusters, bulk groups, and warnings about legal requests."""

import warnings

import numpy as np
import pytest

from golden import (
    Arch,
    ArrayMemory,
    BulkGroups,
    BulkPrefetch,
    BulkStore,
    Cluster,
    DataType,
    DsmemCopy,
    ErrorCode,
    Load,
    Reduce,
    ReductionOp,
    Store,
    TensorMap,
    TmaError,
    advice,
    mbarrier,
)
from golden.errors import (
    BulkSizeWarning,
    ExpectTxWarning,
    RowPaddingWarning,
    SwizzlePatternWarning,
)
from golden.mbarrier import Op

ARRAY = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
MAP = TensorMap.from_array(ARRAY, (32, 8), swizzle="128B")


FULL = mbarrier.Barrier(0, 1, 1, -mbarrier.MAX_COUNT).encode()
"""Word of a barrier that cannot count more bytes."""


@pytest.fixture
def cluster():
    return Cluster(ArrayMemory.of(ARRAY.copy()), ctas=4, smem_bytes=16384)


@pytest.fixture
def shared():
    """Cluster whose global memory is the array that MAP describes."""
    return Cluster(ArrayMemory.of(ARRAY), ctas=4, smem_bytes=16384)


def test_multicast_completes_the_phase_of_every_receiver(shared):
    for cta in range(4):
        shared.mbarrier_init(0, 1, cta=cta)
        shared.mbarrier_arrive_expect_tx(0, 1024, cta=cta)
    shared.issue(Load(MAP, (0, 8), smem_address=1024, cta_mask=0b1101), cta=1)
    waits = [shared.mbarrier_test_wait_parity(0, 0, cta=cta) for cta in (0, 2, 3)]
    assert waits == [True] * 3
    with pytest.warns(ExpectTxWarning, match="CTA 1 waits for 1024 bytes more"):
        assert not shared.mbarrier_test_wait_parity(0, 0, cta=1)
    assert not shared.smem[1][1024:].any()


def test_more_bytes_than_expected_cause_a_warning(shared):
    shared.mbarrier_init(8, 1)
    shared.mbarrier_arrive_expect_tx(8, 1000)
    with pytest.warns(ExpectTxWarning, match="0x8 of CTA 0 got 24 bytes more than it expects"):
        shared.issue(Load(MAP, (0, 8), smem_address=1024, mbarrier=8))


def test_bytes_before_expect_tx_cause_no_warning(shared):
    shared.mbarrier_init(0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shared.issue(Load(MAP, (0, 8), smem_address=1024))
        state = shared.mbarrier_arrive_expect_tx(0, 1024)
        assert shared.mbarrier_test_wait(0, state)


def test_a_fault_of_the_barrier_follows_the_data(shared):
    shared.mbarrier_init(0, 1)
    with pytest.raises(TmaError) as caught:
        shared.mbarrier_arrive(0, 2)
    assert caught.value.code is ErrorCode.MBAR_FAULT
    assert shared.word(0) == mbarrier.init(1) | 1 << 42
    shared.smem[0][:8] = np.frombuffer(np.uint64(FULL).tobytes(), np.uint8)
    with pytest.raises(TmaError, match="tx-count"):
        shared.issue(Load(MAP, (0, 8), smem_address=1024))
    assert shared.word(0) == FULL | 1 << 42
    assert shared.smem[0][1024:2048].any()


@pytest.mark.parametrize(
    ("address", "cta", "code"),
    [(4, 0, ErrorCode.MBAR_ALIGN), (16384, 0, ErrorCode.SMEM_RANGE), (0, 4, ErrorCode.DST_CTA)],
)
def test_illegal_address_or_cta_of_a_barrier(cluster, address, cta, code):
    with pytest.raises(TmaError) as caught:
        cluster.mbarrier_init(address, 1, cta=cta)
    assert caught.value.code is code


def test_dsmem_copy_signals_the_other_cta(cluster):
    cluster.smem[0][:64] = 7
    cluster.mbarrier_init(256, 1, cta=3)
    state = cluster.mbarrier_arrive_expect_tx(256, 64, cta=3)
    cluster.issue(DsmemCopy(3, 512, 0, 64, mbarrier=256))
    assert cluster.mbarrier_test_wait(256, state, cta=3)
    assert (cluster.smem[3][512:576] == 7).all()


def test_drop_and_inval(cluster):
    cluster.mbarrier_init(0, 2)
    cluster.mbarrier_arrive_drop(0)
    cluster.mbarrier_expect_tx(0, 16)
    assert mbarrier.Barrier.decode(cluster.word(0)) == mbarrier.Barrier(0, 1, 1, 16)
    cluster.mbarrier_complete_tx(0, 16)
    assert mbarrier.Barrier.decode(cluster.word(0)).tx_count == 0
    word = cluster.word(0)
    cluster.mbarrier_inval(0)
    assert cluster.word(0) == word
    cluster.mbarrier_arrive(0)
    assert cluster.mbarrier_test_wait_parity(0, 0)


def test_an_update_of_several_lanes(cluster):
    cluster.mbarrier_init(0, 4, cta=2)
    state = cluster.mbarrier_update(Op.ARRIVE_NO_COMPLETE, 0, 2, lanes=2, cta=2)
    assert state == mbarrier.returned_state(mbarrier.init(4), merged=0b11)
    state = cluster.mbarrier_update(Op.ARRIVE_DROP_EXPECT_TX, 0, 32, cta=2)
    assert cluster.mbarrier_pending_count(state) == 2
    barrier = mbarrier.Barrier.decode(cluster.word(0, 2))
    assert barrier == mbarrier.Barrier(phase=0, pending=1, expected=3, tx_count=32)


def test_a_remote_operation_returns_no_state_and_does_not_see_the_lock(cluster):
    cluster.mbarrier_init(0, 1, cta=2)
    with pytest.raises(TmaError):
        cluster.mbarrier_arrive(0, 2, cta=2, issuer=1)
    assert cluster.word(0, 2) == mbarrier.init(1) | 1 << 42
    with pytest.raises(TmaError, match="locked"):
        cluster.mbarrier_arrive(0, cta=2)
    assert cluster.mbarrier_arrive(0, cta=2, issuer=1) == 0
    assert cluster.mbarrier_test_wait_parity(0, 0, cta=2)


def test_remote_stores_signal_the_written_cta(cluster):
    cluster.mbarrier_init(8, 1, cta=3)
    cluster.mbarrier_arrive_expect_tx(8, 16 + 4, cta=3)
    cluster.st_async([(264, bytes(range(8, 16))), (256, bytes(range(8)))], 8, cta=3)
    assert cluster.smem[3][256:272].tolist() == list(range(16))
    cluster.red_async([(256, 1)], DataType.UINT32, ReductionOp.ADD, 8, cta=3)
    assert cluster.smem[3][256:260].tolist() == [1, 1, 2, 3]
    assert cluster.mbarrier_test_wait_parity(8, 0, cta=3)


@pytest.mark.parametrize(
    ("operands", "code"),
    [
        ((264, bytes(16), 8, 3), ErrorCode.SMEM_ALIGN),
        ((16384, bytes(16), 8, 3), ErrorCode.SMEM_RANGE),
        ((256, bytes(16), 4, 3), ErrorCode.MBAR_ALIGN),
        ((256, bytes(16), 8, 4), ErrorCode.DST_CTA),
    ],
)
def test_illegal_remote_stores(cluster, operands, code):
    address, data, barrier, cta = operands
    with pytest.raises(TmaError) as caught:
        cluster.st_async([(256, data), (address, data)], barrier, cta=cta)
    assert caught.value.code is code
    assert not cluster.smem[3].any()
    with pytest.raises(TmaError) as caught:
        cluster.red_async([(address, 0)], DataType.FLOAT32, ReductionOp.ADD, barrier, cta=cta)
    assert caught.value.code is ErrorCode.RED_TYPE
    with pytest.raises(ValueError, match="12 bytes: must be 4, 8 or 16"):
        cluster.st_async([(0, bytes(12))], 8, cta=0)


def test_layout_v1_needs_a_later_architecture(cluster):
    v1 = mbarrier.init(1, v1=True)
    operations = (
        lambda unit: unit.mbarrier_init(0, 1, v1=True),
        lambda unit: unit.mbarrier_report(0, 4),
        lambda unit: unit.mbarrier_test_wait(0, v1, conditional=True),
        lambda unit: unit.mbarrier_test_wait_parity(0, 0, conditional=True),
    )
    for operation in operations:
        with pytest.raises(TmaError) as caught:
            operation(cluster)
        assert caught.value.dim == mbarrier.Fault.OPERATION
    cluster.smem[0][:8] = np.frombuffer(np.uint64(v1).tobytes(), np.uint8)
    assert not cluster.mbarrier_test_wait(0, v1)

    later = Cluster(ArrayMemory.of(ARRAY.copy()), arch=Arch.SM_100A)
    assert [operation(later) for operation in operations] == [None, v1, False, False]
    state = later.mbarrier_arrive(0)
    assert later.mbarrier_test_wait(0, state)
    assert not later.mbarrier_test_wait(0, state, conditional=True)
    later.mbarrier_arrive(0)
    assert later.mbarrier_test_wait(0, state, conditional=True)
    assert later.mbarrier_test_wait_parity(0, 0, conditional=True)


def test_stores_join_the_groups_of_their_thread(cluster):
    cluster.issue(BulkStore(cluster.gmem.base, 0, 64), thread=5)
    groups = cluster.groups(0, 5)
    groups.commit_group()
    assert groups.wait_group(0)
    assert cluster.groups(0, 6).issue() == 0
    assert groups.issue() == 1


def test_groups_wait_for_all_but_the_youngest():
    groups = BulkGroups()
    first, second = groups.issue(), groups.issue()
    groups.commit_group()
    groups.commit_group()  # empty: complete
    third = groups.issue()
    groups.commit_group()
    fourth = groups.issue()  # in no group yet
    assert [groups.wait_group(n) for n in range(4)] == [False, False, False, True]
    groups.source_read(first)
    groups.source_read(third)
    assert [groups.wait_group_read(n) for n in range(4)] == [False, False, False, True]
    groups.source_read(second)
    assert groups.wait_group_read(0)
    groups.complete(third)
    assert [groups.wait_group(n) for n in range(4)] == [False, False, False, True]
    groups.complete(first)
    groups.complete(second)
    assert groups.wait_group(0)
    groups.commit_group()
    assert [groups.wait_group(n) for n in range(2)] == [False, True]
    groups.source_read(fourth)
    groups.complete(fourth)
    assert groups.wait_group(0)


def test_illegal_operations_on_bulk_groups():
    groups = BulkGroups()
    with pytest.raises(ValueError, match="request 0 is not in flight: 0 were issued"):
        groups.source_read(0)
    number = groups.issue()
    with pytest.raises(ValueError, match="complete before its source was read"):
        groups.complete(number)
    groups.source_read(number)
    groups.complete(number)
    with pytest.raises(ValueError, match="request 0 is not in flight"):
        groups.complete(number)
    with pytest.raises(ValueError, match="N = -1"):
        groups.wait_group(-1)


NARROW = TensorMap.tiled("f32", 0, (5, 4), (32,), (8, 4))


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Load(MAP, (0, 0), smem_address=1024), []),
        (Load(MAP, (0, 0), smem_address=128), [SwizzlePatternWarning]),
        (Load(NARROW, (0, 0), smem_address=128), []),
        (Store(NARROW, (0, 0)), [RowPaddingWarning]),
        (Reduce(NARROW, (0, 0)), [RowPaddingWarning]),
        (Store(NARROW, (8, 0)), []),
        (BulkStore(0, 0, 16), []),
        (BulkStore(0, 0, 24), [BulkSizeWarning]),
        (BulkPrefetch(0, (1 << 20) + 16), [BulkSizeWarning]),
    ],
)
def test_advice(request_, expected):
    assert [type(warning) for warning in advice(request_)] == expected


def test_advice_comes_as_a_warning(cluster):
    array = np.zeros((4, 8), np.float32)
    tensor_map = TensorMap.from_array(array[:, :5], (8, 4))
    cluster = Cluster(ArrayMemory.of(array))
    with pytest.warns(RowPaddingWarning, match="bytes 20 to 31") as caught:
        cluster.issue(Store(tensor_map, (0, 0)))
    assert caught[0].message.code is ErrorCode.ROW_PADDING


def test_advice_names_the_line_of_the_caller(cluster):
    with pytest.warns(BulkSizeWarning) as caught:
        cluster.issue(BulkStore(cluster.gmem.base, 0, 24))
    assert caught[0].filename == __file__
