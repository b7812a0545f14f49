"""A cluster in its bench, as cocotb tests see it: an ``Environment`` for each SM."""

from collections.abc import Sequence
from typing import Any

import cocotb

from sim_tb.testbench.bridge import LogKind
from sim_tb.testbench.environment import QUIET, TIMEOUT, Environment
from sim_tb.testbench.models import Models
from sim_tb.testbench.shared import LOGS, Bench, described


class ClusterEnvironment(Bench):
    """The bench around a cluster; make it with ``start``.

    Members
    -------
    sms : list of Environment
        By rank of the CTA.
    gmem : GlobalMemory
    """

    @classmethod
    async def start(
        cls,
        dut: Any,
        models: Models | Sequence[Models] | None = None,
        *,
        seed: int | None = None,
        background: str = "hash",
        logs: Sequence[LogKind] = LOGS,
    ) -> "ClusterEnvironment":
        """Reset cluster and bench, and start the clock.

        Parameters are those of ``Environment.start``; ``models`` is one for all SMs, or one for
        each.
        """
        interface = described()
        seed = cocotb.RANDOM_SEED if seed is None else seed
        cluster = cls(dut, [Environment(dut, interface, seed, sm) for sm in range(interface.sms)])
        await cluster.begin(models, background, logs)
        return cluster

    @property
    def running(self) -> int:
        """A bit for each CTA that runs: all of them, unless it was set otherwise since reset.

        The design knows of a change two clocks later.
        """
        return self._running

    @running.setter
    def running(self, mask: int) -> None:
        self.run(mask)

    async def idle(self, quiet: int = QUIET, timeout: int = TIMEOUT) -> None:
        """Wait until nothing is queued or in flight and no port of an SM moved for ``quiet``
        clocks.
        """
        await self.sms[0].idle(quiet, timeout)
