"""The setup stage: it checks a request and turns it into a job of additions and comparisons.

Requests with their map, and bulk requests, enter; jobs for the request generator leave, or
refusals. All multiplications and all checks of the unit are here. The stage knows the request that
the front delivers, the layouts and ``lib``.
"""
