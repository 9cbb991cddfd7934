"""One voter of the metadata group as a running thing: files, connections, timer around the pure core in raft/."""
