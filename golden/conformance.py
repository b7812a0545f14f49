"""Comparison of the golden model with silicon vectors."""

from collections.abc import Iterable, Iterator

import numpy as np

from golden.errors import TmaError
from golden.model import execute
from golden.vectors import MULTICAST_CTAS, Case, Outcome, Refusal


def outcome(case: Case) -> Outcome:
    """Execute a transfer on the golden model; return its outcome."""
    if case.op == "load":
        smem = [case.smem() for _ in range(MULTICAST_CTAS if case.is_multicast else 1)]
        gmem = case.gmem
        memory = np.concatenate(smem) if case.is_multicast else smem[0]
        if case.is_multicast:
            smem = list(memory.reshape(MULTICAST_CTAS, -1))
    else:
        gmem = writable = case.gmem_writable()
        smem, memory = [case.smem()], writable.bytes
    try:
        completions = execute(case.request(), gmem, smem, cta=case.issuer)
    except TmaError as error:
        refused = Refusal(error.code, error.dim, error.value % (1 << 64))
        return Outcome(refused=refused, memory=memory)
    receivers = [cta for cta in range(len(smem)) if case.cta_mask >> cta & 1] or [case.issuer]
    if completions and [c.cta for c in completions] != receivers:
        return Outcome(note=f"complete_tx at {completions}, expected at CTAs {receivers}")
    counts = {completion.bytes for completion in completions}
    if len(counts) > 1:
        return Outcome(note=f"receivers count different numbers of bytes: {completions}")
    return Outcome(bytes=counts.pop() if counts else 0, memory=memory)


def outcomes(cases: Iterable[Case]) -> Iterator[Outcome]:
    """Yield the outcome of each transfer, in order."""
    return map(outcome, cases)


def check_encoding(case: Case) -> str | None:
    """Compare the encoder with the driver's, in status and bytes.

    Returns
    -------
    str or None
        The first difference, or None.
    """
    try:
        tensor_map = case.tensor_map()
    except TmaError as error:
        return None if case.encode_status else f"{case}: the driver accepts the map, got {error}"
    if case.encode_status:
        return f"{case}: the driver rejects the map, the golden model accepts it"
    got = tensor_map.encode()
    for n in range(0, len(got), 4):
        a, b = got[n : n + 4][::-1].hex(), case.descriptor[n : n + 4][::-1].hex()
        if a != b:
            return f"{case}: word w{n // 4}: expected 0x{b}, got 0x{a}"
    if type(tensor_map).decode(got) != tensor_map:
        return f"{case}: decoding the encoded bytes gives another map"
    return None
