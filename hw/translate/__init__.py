"""Translation: virtual addresses through a small TLB, between the unit and global memory."""
