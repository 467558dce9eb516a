"""The hints: "look again", carried inside a node and between nodes."""
