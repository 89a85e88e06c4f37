"""What all tests share: thread pools that sleep instead of spinning, and no network for anything but the asset fetcher's own tests."""

import os

# Two OpenMP pools that spin against one another on two cores slow each other a hundredfold.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["ACCEL_HEADLESS"] = "1"
