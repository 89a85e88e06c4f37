"""The two panels: one that measures whatever is chosen, and one that sets each choice against FP32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accel_helpers import bench
from accel_helpers.accuracy import Budget
from accel_helpers.bench import Comparison
from accel_helpers.charts import Chart, batch_sweep, rounds_so_far, seconds, trade_off
from accel_helpers.charts.words import reasoned
from accel_helpers.config import RunConfig
from accel_helpers.panel.state import Number, State

CALIBRATION = (8, 16, 32, 64, 128, 256, 512)
"""The calibration slider's stops."""


@dataclass(frozen=True)
class Explore(State):
    """One measurement after another, over the batch size."""

    largest_batch: int = 64

    choices: ClassVar[tuple[str, ...]] = ("engine", "precision", "device")
    note: ClassVar[str] = "Each point is a run of its own. Which of two plans is faster, only an interleaved comparison can say."

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The batch size."""
        return (_batch(self.config, self.largest_batch),)

    def said(self, comparison: Comparison) -> str:
        """The plan's call time and status."""
        (one,) = comparison.measurements
        verdict = f"{one.status}: {'; '.join(one.reasons)}" if one.reasons else one.status
        return f"{one.plan.label}: P50 {seconds(one.p50)} per call (95 % interval). {verdict}."

    def drawn(self) -> Chart:
        """Throughput and call time over the batch size."""
        if self.history:
            return batch_sweep(self.history)
        return rounds_so_far((bench.plan_of(self.config),), ((),), self.config.rounds)


@dataclass(frozen=True)
class Quantize(State):
    """One way to quantize after another, each against FP32 of the same engine: speed-up against the change of the task metric."""

    budget: float = 0.01
    largest_batch: int = 64

    choices: ClassVar[tuple[str, ...]] = ("engine", "precision", "scheme", "calibrator", "reduce_range")
    switches: ClassVar[tuple[str, ...]] = ("per_channel", "symmetric")
    note: ClassVar[str] = (
        "Each point is one interleaved run of a plan and its baseline, FP32 of the same engine. "
        "Two points were not interleaved with one another."
    )

    @property
    def numbers(self) -> tuple[Number, ...]:
        """The calibration size and the batch size."""
        size = self.config.calibration
        samples = Number(
            "calibration", "Calibration samples", min(CALIBRATION[0], size), max(CALIBRATION[-1], size), tuple(sorted({*CALIBRATION, size}))
        )
        return (samples, _batch(self.config, self.largest_batch))

    @property
    def allowed(self) -> Budget:
        """The budget."""
        return Budget(self.budget)

    def runs(self, config: RunConfig) -> tuple[RunConfig, ...]:
        """FP32 of the same engine, and the choice."""
        return (config.replace(precision="fp32"), config)

    def reason(self, config: RunConfig) -> str:
        """FP32 is nothing to set against FP32."""
        if config.precision == "fp32":
            return "FP32 is the baseline that the other precisions are set against"
        return super().reason(config)

    def said(self, comparison: Comparison) -> str:
        """The chart's sentence for this plan alone, and what is doubtful about it."""
        doubts = [f"{one.plan.label}: {reasoned(one.status, one.reasons)}." for one in comparison.measurements if one.reasons]
        return " ".join([trade_off(comparison.measurements, comparison.verdicts, self.budget).sentence, *doubts])

    def drawn(self) -> Chart:
        """The trade-off of every finished plan."""
        return trade_off(self.history, self.verdicts, self.budget)


def _batch(config: RunConfig, largest: int) -> Number:
    return Number("batch", "Batch", 1, max(largest, config.batch))
