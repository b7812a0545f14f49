"""AXI4 port: global memory behind the interconnect of a system on chip."""
