"""Builds that fail, shapes declared wrong, and what simplifying a graph mends."""
