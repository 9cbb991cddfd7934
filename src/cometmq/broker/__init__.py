"""The broker process: ``broker`` builds and joins its parts, ``handlers`` answers, ``ha`` replicates.

The other files are one part each: tables (topics, groups, offsets, clients, locks), messages that wait (held pulls,
delays, timers, transactions), the short ways of plain sends and pulls, and figures. Loop thread only.
"""
