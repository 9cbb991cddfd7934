"""Macro benchmarks: the whole broker beside the real Java broker, same generator, alternating."""
