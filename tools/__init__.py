"""Tools that set a checkout up. Standard library only: it runs before anything is installed."""
