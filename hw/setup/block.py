"""Setup block: clips boxes to their tensors, multiplies, and merges rows into runs.

A request and its tensor map become jobs, or a refusal. The items of a request pass through five
stages, a batch a clock:

    sequence  takes the fields of the items out of the tensor map, and makes the checks without
              arithmetic
    clip      finds the steps in front of the tensor and up to its end, and the first position
              inside
    multiply  multiplies this position and the element stride by the tensor's stride, and counts the
              steps inside, alone and times the lengths of the items below
    span      multiplies the lengths and these steps by what the batches below span, and adds the
              offsets of the items
    build     accumulates the addresses, runs and loops of the batches of a walk
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import refusal_layout, request_with_map_layout, walk_job_layout
from hw.params import TmaParams
from hw.setup.clip_stage import ClipStage
from hw.setup.decode_stage import DecodeStage
from hw.setup.item_sequencer import ItemSequencer
from hw.setup.job_builder import JobBuilder
from hw.setup.multiply_stage import MultiplyStage
from hw.setup.outcome_queues import OutcomeQueues
from hw.setup.span_stage import SpanStage

STAGES = 5


class SetupBlock(wiring.Component):
    """Turns each tensor request with its map into jobs or a refusal, in order.

    Latency: 7 clocks, and one for each batch of the request beyond the first. Throughput: a batch a
    clock, of an item for each of the ``setup_pipelines``. See ``ItemSequencer`` for the batches of
    a request. Back-pressure: a request waits in the ``DecodeStage``. No later stage waits, because
    jobs and refusals have places in the ``OutcomeQueues``. All outputs, ``i.ready`` included, come
    from registers.

    Errors: a request that violates a check is refused, with the first error in the order of
    ``ErrorCode``. If the tensor map could not be read, the error is GMEM_FAULT. A refused request
    has no job and no other effect.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(request_with_map_layout(params)))
    job : Out(stream.Signature(walk_job_layout(params)))
    error : Out(stream.Signature(refusal_layout(params)))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(request_with_map_layout(params))),
                "job": Out(stream.Signature(walk_job_layout(params))),
                "error": Out(stream.Signature(refusal_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.decode_stage = decode = DecodeStage(p)
        m.submodules.item_sequencer = sequencer = ItemSequencer(p)
        m.submodules.clip_stage = clip = ClipStage(p)
        m.submodules.multiply_stage = multiply = MultiplyStage(p)
        m.submodules.span_stage = span = SpanStage(p)
        m.submodules.job_builder = builder = JobBuilder(p)
        clipped, multiplied, spanned = (
            Signal(name=f"{name}_valid") for name in ("clipped", "multiplied", "spanned")
        )
        m.submodules.outcomes = outcomes = OutcomeQueues(p, STAGES)
        connect(m, flipped(self.i), decode.i)
        connect(m, decode.o, sequencer.i)
        connect(m, builder.job, outcomes.job)
        connect(m, builder.error, outcomes.error)
        connect(m, outcomes.o.job, flipped(self.job))
        connect(m, outcomes.o.error, flipped(self.error))
        m.d.comb += [
            decode.admits_next.eq(outcomes.admits_next),
            clip.i.eq(sequencer.o.p),
            multiply.i.eq(clip.o),
            multiply.early_error.eq(sequencer.early_error),
            span.valid.eq(multiplied),
            span.i.eq(multiply.o),
            builder.valid.eq(spanned),
            builder.i.eq(span.o),
        ]
        m.d.sync += [
            clipped.eq(sequencer.o.valid),
            multiplied.eq(clipped),
            spanned.eq(multiplied),
        ]
        return m
