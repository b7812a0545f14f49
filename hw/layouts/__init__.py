"""Payloads of the streams between blocks, and of the unit's ports.

The module of the stage that produces a field describes it; other modules refer to that description.
The modules hold layouts, and functions on their fields that need no state. Each module may import
the parameters and the modules before it in this order: ``isa``, ``ports``, ``barriers``, ``jobs``,
``lines``, ``cluster``.
"""
