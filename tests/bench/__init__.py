"""Tests of the demo and the load job."""
