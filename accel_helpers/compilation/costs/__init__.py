"""What a call costs beside its arithmetic, and what a speed-up costs before it pays."""
