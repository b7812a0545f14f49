"""Random legal parameters of a unit."""

import random

from hw.params import SMEM_BYTES_MAX, SMEM_BYTES_MIN, TmaParams


def drawn(rng: random.Random, ctas: int | None = None) -> TmaParams:
    """Return legal parameters, whose numbers are at the ends of their ranges more often.

    ``ctas`` is drawn, too, unless it is given.
    """

    def number(*values: int) -> int:
        return rng.choice([values[0], values[-1], *values])

    features = {
        name: rng.random() < 0.5
        for name, default in vars(TmaParams()).items()
        if isinstance(default, bool)
    }
    while True:
        changes = features | {
            "line_bytes": number(16, 32, 64, 128),
            "address_bits": number(32, 33, 48, 64),
            "smem_bytes": number(SMEM_BYTES_MIN, 4224, 233472, SMEM_BYTES_MAX),
            "request_queue_depth": number(2, 3, 8, 64),
            "descriptor_cache_entries": number(2, 3, 8),
            "setup_pipelines": number(1, 2, 4, 5),
            "tags": number(2, 8, 64, 4096),
            "requests_in_flight": number(2, 8, 64, 4096),
            "lane_depth": number(2, 4, 64),
            "request_id_bits": number(1, 16, 32),
            "smem_reads": number(2, 16, 256),
            "threads": number(2, 32, 64, 2048),
            "bulk_groups": number(4, 8, 64),
            "barrier_waiters": number(1, 4, 16),
            "completions_waiting": number(0, 2, 8),
            "streams": number(1, 2, 4),
            "jobs_waiting": number(4 if features["gather4"] else 1, 8, 64),
            "ctas": ctas or number(1, 2, 4, 16),
            "tlb_entries": number(0, 2, 5, 16),
            "tlb_page_bits": number(12, 16, 21),
        }
        try:
            return TmaParams(**changes)
        except ValueError:
            for name in features:
                features[name] = rng.random() < 0.5
