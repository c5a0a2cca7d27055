"""The deploy kit: checks that need no container runtime and no cluster of machines."""
