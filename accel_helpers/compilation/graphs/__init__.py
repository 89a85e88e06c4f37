"""A graph before and after fusion, and how long its values live."""
