"""One intent as the commands that fit each version of TensorRT."""
