"""Records and built artifacts on disk. What was finished stays, what was half done is never seen, and nothing is loaded unverified."""

from accel_helpers.store.store import Store

__all__ = ["Store"]
