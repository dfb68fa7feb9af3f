"""Fused models in the runtimes that have kernels for `custom.ops`."""
