"""Columns of pixels for the walkers, behind the setup block, and the check of their walks."""

from collections.abc import Sequence
from dataclasses import replace

from golden import Arch, Load, Reduce, Store
from golden.request import as_descriptor
from hw.params import TmaParams
from hw.setup.block import SetupBlock
from tests.hw.boxes import Pieces
from tests.hw.generate.generators import Walks
from tests.hw.golden_requests import expected, setup_input
from tests.hw.setup.test_block import covered_by
from tests.hw.simulate import Run, run_streams, simulation
from tests.unit_arch import LATER_UNIT


def one_stream(params: TmaParams) -> TmaParams:
    """Return the parameters of a smaller unit whose setup makes the same jobs."""
    return replace(params, streams=1, setup_pipelines=min(params.setup_pipelines, 2))


def setup(requests: Sequence[Load | Store], params: TmaParams) -> list:
    """Return the jobs that the setup block makes of ``requests``."""
    inputs = {"i": [setup_input(request, number) for number, request in enumerate(requests)]}
    block = simulation(SetupBlock, one_stream(params))
    run = run_streams(block, inputs, ["job", "error"], stall=0)
    assert not run.payloads["error"]
    return run.payloads["job"]


def with_slots(jobs: Sequence, params: TmaParams) -> list[dict]:
    """Return the jobs of setup as the generator gets them; the slot is the request's number."""
    parts = "last", "walk", *(["column"] if params.im2col else [])
    return [
        {
            "channel": channel_of(job, params),
            "slot": job.transfer.request_id,
            **{name: getattr(job, name) for name in parts},
        }
        for job in jobs
    ]


def channel_of(job, params: TmaParams) -> int:
    """Return the channel of a job of stream 0."""
    return params.streams if params.stores and job.walk.store else 0


def walk(
    requests: Sequence[Load | Store], params: TmaParams, *, all_streams: bool = False, **options
) -> Run:
    """Return the run of the walk generator for loads or stores, behind the setup block.

    The walks are the payloads of ``o``. Unless ``all_streams``, the unit has one stream.
    """
    params = params if all_streams else one_stream(params)
    jobs = with_slots(setup(requests, params), params)
    output = "store_walk" if isinstance(requests[0], Store) else "walk_0"
    run = run_streams(simulation(Walks, params), {"i": jobs}, [output], **options)
    run.payloads["o"], run.cycles["o"] = run.payloads[output], run.cycles[output]
    return run


def requests_of(run: Run) -> list[list]:
    """Return the walks of a run, request by request."""
    requests: list[list] = [[]]
    for job in run.payloads["o"]:
        requests[-1].append(job)
        if job.last:
            requests.append([])
    assert requests.pop() == []
    return requests


def written_by(jobs) -> Pieces:
    """Return the pieces that the walks of a store cover; there is no fill."""
    return {smem: source for smem, source in covered_by(jobs).items() if source}


def check_stores(stores: Sequence[Store], run: Run, arch: Arch) -> None:
    """Compare the pieces that the walks of each store cover, and the fields they carry."""
    for number, (store, jobs) in enumerate(zip(stores, requests_of(run), strict=True)):
        assert written_by(jobs) == expected(store, arch), store
        for job in jobs:
            assert job.slot == number
            assert (job.walk.store, job.walk.prefetch, job.walk.tail_bytes) == (1, 0, 0)
            reduction = job.walk.write_mode.reduction
            assert reduction.enabled == isinstance(store, Reduce)
            if isinstance(store, Reduce):
                kind = as_descriptor(store.tensor_map).format
                assert (reduction.op.value, reduction.element_type.value) == (store.op, kind)
            if arch is LATER_UNIT:
                assert job.walk.write_mode.byte_mask == 0xFFFF
