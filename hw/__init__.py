"""The Tensor Memory Accelerator in Amaranth, one file a block; ``hw.top`` connects them."""
