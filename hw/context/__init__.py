"""Blocks that keep the contexts of an SM apart at the ports that they share."""
