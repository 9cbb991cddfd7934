"""Micro benchmarks: CPU per message of the compiled parts, in one process, without sockets."""
