"""Quantization looked at from above: which layers are sensitive, and why a quantized model is slow or wrong."""
