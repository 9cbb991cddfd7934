"""The command ``cometmq``: one file per noun, imported when its command is used; ``main`` is the entry."""
