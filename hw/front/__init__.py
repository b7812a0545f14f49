"""The front of the unit: it captures requests and fetches the map of each tensor request.

Requests of the SM's threads enter; requests with a bulk group, a destination and the 64 bytes of
their map leave. The front also counts the bulk groups of each thread, and answers the waits for
them. It knows the layouts and ``lib``, and none of the stages behind it.
"""
