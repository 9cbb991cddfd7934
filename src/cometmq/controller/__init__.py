"""Who is master of a group of replicas: a small Raft group that keeps only metadata (ha.md 5 and 6)."""
