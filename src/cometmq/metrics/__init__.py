"""Counters of the servers as Prometheus text, and health pages over HTTP."""
