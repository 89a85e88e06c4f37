"""Models: what to run. A network, example inputs, labelled data and a metric; built in, or the reader's own."""

from accel_helpers.models.model import Array, Dataset, Metric, Model, Split
from accel_helpers.models.own import get, names

__all__ = ["Array", "Dataset", "Metric", "Model", "Split", "get", "names"]
