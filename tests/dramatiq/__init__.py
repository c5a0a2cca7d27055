"""The broker of dramatiq: fifo/dramatiq."""
