"""The Tensor Memory Accelerator in Amaranth, one block a file.

The sub-packages are the stages of a request's way, in this order: ``front``, ``setup``,
``generate``, ``load``, ``store``, ``barrier``, ``cluster``, ``reduce``. ``layouts`` has the
payloads between the blocks, ``lib`` the parts that several stages use, and ``flow`` the tools
around the hardware. ``params`` has the choices; ``top`` connects the blocks of a unit, and
``cluster_top`` the units of a cluster.
"""

from open_tma.installation import need

need(__name__, "rtl")
