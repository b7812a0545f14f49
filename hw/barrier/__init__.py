"""The mbarrier unit: applies operations to the barriers in shared memory, one per clock.

Commands of the SM's threads and completions of requests enter; results, wakes and faults leave.
Only this stage reads and writes the words of barriers. It knows the layouts and ``lib``.
"""
