"""What a broker answers: one file per family of requests, one function per request code.

Each file has ``handlers(broker)``, the table of its codes; ``broker.py`` puts them together.
"""
