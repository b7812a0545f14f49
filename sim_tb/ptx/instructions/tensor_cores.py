"""Fences and groups of ``wgmma``; products are refused."""

from sim_tb.ptx.operands import Execute, Operands, instruction


@instruction("wgmma")
def wgmma(ins: Operands) -> Execute:
    """``wgmma.fence``, ``.commit_group`` and ``.wait_group``."""
    if ins.parts[1] not in ("fence", "commit_group", "wait_group"):
        raise ins.refuse()
    return lambda _warp, _mask: None
