"""The mbarrier unit: barriers in shared memory, one operation a clock.

Operations of the SM's threads and ``complete_tx`` of loads enter; results, ends of waits and faults
leave. Only this stage reads and writes the words of barriers. It knows the layouts and ``lib``.
"""
