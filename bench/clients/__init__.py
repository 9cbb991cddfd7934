"""Our client beside the Java client, under the same load, against the same broker."""
