from accel_helpers.environment.machine import describe
