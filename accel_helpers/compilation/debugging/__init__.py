"""What two engines answer side by side, and the operator to blame."""
