"""The remoting server and client on asyncio: connections, limits, TLS."""
