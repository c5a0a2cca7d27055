"""Changes of members at length: `make members`."""
