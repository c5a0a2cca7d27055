"""The broker of taskiq: fifo/taskiq."""
