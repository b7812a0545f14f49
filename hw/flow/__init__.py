"""Tools around the hardware: Verilog, lint, synthesis, and tables of documents.

Parameters of a unit enter; files and figures leave. There is no hardware here, and no block imports
this package. The tools may import all of ``hw``.
"""
