"""Who is master of a group of replicas: a small Raft group that keeps only metadata."""
