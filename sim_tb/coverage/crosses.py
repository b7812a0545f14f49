"""The crosses that ``make coverage`` reports, and the record of a sample."""

from golden.arch import Arch
from golden.mbarrier import Op
from golden.request import Request
from sim_tb.coverage.barrier_kinds import BarrierKind
from sim_tb.coverage.cluster_kinds import ClusterKind
from sim_tb.coverage.kinds import Kind, RequestKind, is_recording, write
from sim_tb.coverage.load_kinds import LoadKind
from sim_tb.coverage.store_kinds import ReductionKind, StoreKind

REQUESTS: tuple[type[RequestKind], ...] = (LoadKind, StoreKind, ReductionKind)
CROSSES: tuple[type[Kind], ...] = (*REQUESTS, ClusterKind, BarrierKind)


def record(request: Request, arch: Arch) -> None:
    """Record a request that a unit of ``arch`` accepts, if the environment names a directory.

    A request that is in no cross is not recorded.
    """
    if is_recording():
        for kind in filter(None, (cross.of(request, arch) for cross in REQUESTS)):
            write(kind)


def record_operation(word: int, op: Op, count: int, lanes: int, port: str) -> None:
    """Record an operation on a barrier of layout v0, if the environment names a directory.

    An arrival with bytes that has no lane is not recorded: no thread can issue it.
    """
    if is_recording() and (lanes or not op.expects_tx):
        write(BarrierKind.of(word, op, count, lanes, port))


def record_in_cluster(kind: ClusterKind) -> None:
    """Record a request in a cluster, if the environment names a directory."""
    if is_recording():
        write(kind)
