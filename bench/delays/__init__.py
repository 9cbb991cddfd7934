"""Delayed messages under load and under SIGKILL: what is lost, early, doubled or late, ours beside the Java peer."""
