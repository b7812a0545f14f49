"""The setup stage: it checks a request and turns it into jobs of additions and comparisons.

Tensor requests with their map, and bulk requests, enter; jobs for the request generator, and
refusals, leave. All multiplications and all checks of the unit are here. The stage knows the
request that the front delivers, the layouts and ``lib``.
"""
