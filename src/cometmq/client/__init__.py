"""The client: producers, consumers, streams. Runs on any system and needs nothing compiled.

What applications use is exported by :mod:`cometmq`. ``instance`` is what all producers and consumers of a client share:
connections, routes, heartbeats.
"""
