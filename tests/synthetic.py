"""Sessions and clocks with known answers."""

import math
import random

import numpy as np

from accel_helpers.engine import Session


class FakeClock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += seconds


class Timed(Session):
    """Answers ``x + 1`` after the time that ``duration`` gives, on a fake clock."""

    def __init__(self, clock, duration):
        self.clock, self.duration = clock, duration

    def run(self, placed):
        self.clock.advance(self.duration())
        return placed

    def fetch(self, result):
        return {"y": result["x"] + np.float32(1)}


def inputs(count=4, width=64):
    return [{"x": np.random.default_rng(seed).normal(size=(1, width)).astype(np.float32)} for seed in range(count)]


def references(sets):
    return [{"y": one["x"] + np.float32(1)} for one in sets]


class Neighbour:
    """A shared machine: slow drift, and bursts that last for several calls. A factor for the time of a call that begins now."""

    def __init__(self, clock, seed, drift=0.10, burst=0.6):
        self.clock, self.draw, self.drift, self.burst = clock, random.Random(seed), drift, burst
        self.phase, self.until, self.busy = self.draw.uniform(0, math.tau), 0.0, False

    def factor(self):
        if self.clock.now >= self.until:
            self.busy = self.draw.random() < 0.3
            self.until = self.clock.now + self.draw.expovariate(1 / 0.05)
        drifted = 1 + self.drift * math.sin(self.phase + self.clock.now / 1.5)
        return drifted * (1 + self.burst * self.busy) * math.exp(self.draw.gauss(0, 0.02))
