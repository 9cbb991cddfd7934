"""The demo: a registration service with and without a broker, told in about a minute with real processes.

``cometmq demo`` (cli/demo.py) runs ``story``. Every number it prints was measured in that run.
"""
