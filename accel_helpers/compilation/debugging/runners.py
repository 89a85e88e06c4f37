"""Plans of this package as Polygraphy runners, for ``Comparator`` and whatever else takes a runner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polygraphy.backend.base import BaseRunner

from accel_helpers import models
from accel_helpers.bench import loaded, plan_of
from accel_helpers.config import RunConfig
from accel_helpers.engine import Array, Session
from accel_helpers.engines._inputs import Signature
from accel_helpers.errors import UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Plan


class SessionRunner(BaseRunner):  # type: ignore[misc]
    """A configuration as a Polygraphy runner: built where it is not, and run by the engine's own session.

    ``with SessionRunner(config) as runner: runner.infer(feed_dict)`` works wherever Polygraphy takes a runner.
    """

    def __init__(self, config: RunConfig, name: str | None = None) -> None:
        super().__init__(name or plan_of(config).label)
        self.config = config
        self._session: Session | None = None

    def activate_impl(self) -> None:
        """Build the plan, or find it built, and load it.

        Raises:
            UnsupportedError: the plan cannot run here.
        """
        self._session = loaded(self.config)

    def get_input_metadata_impl(self) -> Any:
        """Names, types and shapes of the inputs; an open axis is None."""
        return _metadata(models.get(self.config.model), plan_of(self.config))

    def infer_impl(self, feed_dict: Mapping[str, Array]) -> dict[str, Array]:
        """One call from NumPy to NumPy."""
        assert self._session is not None
        self.inference_time = 0.0  # engines are timed by ``measure`` alone
        return self._session(dict(feed_dict))

    def deactivate_impl(self) -> None:
        """Close the session."""
        assert self._session is not None
        self._session.close()
        self._session = None


class NetworkRunner(BaseRunner):  # type: ignore[misc]
    """A model's PyTorch network in FP64 on the CPU, as a Polygraphy runner: what the answer would be without rounding."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__("PyTorch FP64")
        self.config = config
        self._network: Any = None

    def activate_impl(self) -> None:
        """Make the network and turn its weights into FP64.

        Raises:
            UnsupportedError: the model is an ONNX file.
        """
        model = models.get(self.config.model)
        if model.build is None:
            raise UnsupportedError(f"{model.name} is an ONNX file, without a network to run in FP64.", "Compare against the first plan.")
        self._network = model.build().eval().double()

    def get_input_metadata_impl(self) -> Any:
        """Names, types and shapes of the inputs; an open axis is None."""
        return _metadata(models.get(self.config.model), plan_of(self.config))

    def infer_impl(self, feed_dict: Mapping[str, Array]) -> dict[str, Array]:
        """One call; every floating output is float64."""
        import torch

        from accel_helpers.engines.pytorch import named

        self.inference_time = 0.0
        tensors = {name: torch.from_numpy(array) for name, array in feed_dict.items()}
        with torch.inference_mode():
            given = {name: one.double() if one.is_floating_point() else one for name, one in tensors.items()}
            result = named(self._network(**given), models.get(self.config.model))
        return {name: tensor.numpy() for name, tensor in result.items()}

    def deactivate_impl(self) -> None:
        """Free the network."""
        self._network = None


def _metadata(model: Model, plan: Plan) -> Any:
    from polygraphy.common import TensorMetadata

    metadata = TensorMetadata()
    for name, (dtype, shape) in Signature(model, plan).inputs.items():
        metadata.add(name, dtype, [None, *(None if isinstance(size, str) else size for size in shape[1:])])
    return metadata
