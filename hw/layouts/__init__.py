"""Payloads of the streams between blocks, and of the unit's ports.

Every field is described once, in the module of the stage that produces it. The modules hold
layouts and the predicates that belong to a field, and no behaviour. They know the parameters and
the modules in front of them in this order: ``isa``, ``ports``, ``barriers``, ``jobs``, ``lines``,
``cluster``.
"""
