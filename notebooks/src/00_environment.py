# %% [markdown]
# # What is this machine, and what can it reach?
#
# A model is fast or slow *on a machine*. Before touching a model, find out four things: what is in the machine, whether its software
# fits together, how fast it can possibly be, and which route to acceleration follows from that. Everything here is measured on the spot.
#
# The next cell holds the settings. They have the same names everywhere: here, in `accel run threads=1`, in a YAML file.

# %% tags=["parameters"]
model: str = "text-encoder"
precision: str = "fp32"
device: str = "cpu"
batch: int = 1
sequence: int = 128
threads: int = 0
rounds: int = 12
seconds: float = 3.0

# %% [markdown]
# A misspelt or ill-typed setting stops the notebook here, before anything runs.

# %%
from accel_helpers import bench, charts, environment, instructions, lesson, models
from accel_helpers.config import RunConfig

config = RunConfig.from_namespace(globals())

# %% [markdown]
# ## What is here
#
# `describe` reads the processor's flags, the CPUs and memory that this process may use (a container's quota counts, the host's core count
# does not), the GPUs and the versions of everything that matters. `findings` compares them: each problem comes with the command that mends it.
# No GPU is a normal answer.

# %%
here = environment.describe()
findings = environment.findings(here)
print(environment.render(here, findings, environment.route(here)))
