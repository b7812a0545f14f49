"""Parameters of the units that simulated tests use, besides the default ones."""

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
"""A small unit with all features."""

TINY = replace(PRESETS["tiny"], address_bits=64)
FPGA = replace(PRESETS["fpga"], address_bits=64)
FULL = replace(PRESETS["full"], address_bits=64)
"""The presets ``tiny``, ``fpga`` and ``full`` with the golden model's addresses of 64 bits."""

TINY_STORES = replace(TINY, stores=True, bulk=True)
"""``TINY`` with stores and bulk copies: lines of 16 bytes, no reductions, no im2col."""

LOADS_ONLY = replace(SMALL, stores=False, reductions=False)

HOST = replace(
    SMALL,
    address_bits=32,
    smem_bytes=16 * 1024,
    request_id_bits=12,
    axi_data_bits=64,
    host=True,
    counters=True,
)
"""``SMALL`` between AXI4-Lite and AXI4, with 16 KiB of shared memory and with counters."""

LATER = replace(
    PRESETS["sm_107a"], smem_bytes=512 * 1024, streams=1, setup_pipelines=2, jobs_waiting=32
)
"""A unit with the modes of later architectures, and shared memory for two of the largest boxes."""

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
    mbarrier_v1=True,
    report_mechanism=True,
)
"""Four SMs with lines of 128 bytes and only the features that tests of clusters need."""

WIDE_CLUSTER = replace(
    CLUSTER,
    ctas=18,
    multicast_32b=True,
    cta_group_2=False,
    line_bytes=32,
    tags=16,
    setup_pipelines=1,
)
"""More SMs than a mask of 16 bits has."""
