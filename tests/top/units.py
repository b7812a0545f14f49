"""Units that benches are run on, besides the default one."""

from dataclasses import replace

from hw.params import PRESETS, TmaParams

SMALL = TmaParams(
    line_bytes=32,
    tags=4,
    requests_in_flight=2,
    descriptor_cache_entries=2,
    setup_pipelines=1,
    request_queue_depth=2,
    lane_depth=4,
    smem_reads=4,
    threads=4,
    streams=1,
    bulk_groups=4,
)
"""As narrow and shallow as it is of use; a ``compact`` one that does everything."""

TINY = replace(PRESETS["tiny"], address_bits=64)
FPGA = replace(PRESETS["fpga"], address_bits=64)
"""Whose addresses are those of the golden model."""

TINY_STORES = replace(TINY, stores=True, bulk=True)
"""With stores, of lines of one piece; no reductions, no images."""

LOADS_ONLY = replace(SMALL, stores=False, reductions=False)

LATER = replace(
    PRESETS["sm_100a"], smem_bytes=512 * 1024, streams=1, setup_pipelines=2, jobs_waiting=16
)
"""What came after Hopper; here the largest box leaves room for others in flight."""

CLUSTER = TmaParams(
    ctas=4,
    cta_group_2=True,
    tags=64,
    requests_in_flight=16,
    setup_pipelines=2,
    lane_depth=8,
    smem_reads=16,
    threads=4,
    streams=1,
    bulk_groups=4,
    barrier_waiters=8,
    im2col=False,
)
"""Four SMs with lines of 128 bytes, and no more than clusters need."""

OCTET = replace(
    CLUSTER, ctas=8, cta_group_2=False, reductions=False, line_bytes=32, setup_pipelines=1
)
"""Eight SMs, of narrower lines; ``compact``."""
