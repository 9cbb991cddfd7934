"""The wire and the record format without sockets, clocks or asyncio: bytes in, values out, and back.

``command`` is a frame, ``headers`` its typed fields, ``bodies`` its typed bodies; ``record_cy`` is a stored message.
"""
