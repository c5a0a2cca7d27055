"""The http port of a node: health."""
