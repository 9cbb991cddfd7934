"""Consumers: push (clustering, broadcast, ordered) and stream (lite pull)."""
