"""What the records say of the claims that people repeat: pure functions from measurements to a :class:`~accel_helpers.records.Claim`.

A claim about a quantity holds when its whole 95 % interval lies on the claimed side of a bound, does not hold here when the whole interval
lies on the other side, and is too noisy to say in between, or where a measurement behind it is INVALID.
A claim about hardware that this machine has not is not tested here.
"""

from accel_helpers.claims.baseline import batch_growth, busy_is_not_fast, first_call, utilisation, vectors_and_bandwidth
from accel_helpers.claims.engines import build_once, faster_engine, memory_falls
from accel_helpers.claims.graphs import shapes_mend, simplifying_helps
from accel_helpers.claims.judging import judge
from accel_helpers.claims.launch import free_lunch, graphs_remove_overhead, tf32_is_nearly_fp16
from accel_helpers.claims.quantization import attention_is_sensitive, calibration_data, quantized_is_faster, smaller, training_recovers

__all__ = [
    "attention_is_sensitive",
    "batch_growth",
    "build_once",
    "busy_is_not_fast",
    "calibration_data",
    "faster_engine",
    "first_call",
    "free_lunch",
    "graphs_remove_overhead",
    "judge",
    "memory_falls",
    "quantized_is_faster",
    "shapes_mend",
    "simplifying_helps",
    "smaller",
    "tf32_is_nearly_fp16",
    "training_recovers",
    "utilisation",
    "vectors_and_bandwidth",
]
