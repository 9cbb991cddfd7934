"""Raft for the few kilobytes that say who is master. Pure: no clock, socket, thread, file or chance inside."""
