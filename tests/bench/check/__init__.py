"""Tests of the history checker on Spark."""
