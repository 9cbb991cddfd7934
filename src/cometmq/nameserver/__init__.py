"""The NameServer: who serves which topic, and the KV configuration."""
