"""Tools around the hardware: Verilog, lint, synthesis, and the tables of the documents.

Parameter sets enter; files and figures leave. Nothing here is hardware, and no block imports it.
The tools may know the whole of ``hw``.
"""
