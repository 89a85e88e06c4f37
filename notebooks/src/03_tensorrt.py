# %% [markdown]
# # What does a compiled engine buy?
#
# A framework runs a model operator by operator. A compiler sees the whole graph: it fuses operators, plans memory and picks kernels for this
# very machine. TensorRT does that for NVIDIA GPUs, OpenVINO and ONNX Runtime for CPUs, `torch.compile` for both. The road is the same for
# all: export, build once, keep the files, load, compare with the baseline, check the answers.

# %% tags=["parameters"]
model: str = "text-encoder"
precision: str = "fp32"
device: str = "cpu"
batch: int = 1
sequence: int = 128
threads: int = 0
rounds: int = 12
seconds: float = 3.0
seed: int = 0

# %% [markdown]
# A misspelt or ill-typed setting stops the notebook here, before anything runs.

# %%
from accel_helpers import bench, charts, lesson, panel
from accel_helpers.config import RunConfig

config = RunConfig.from_namespace(globals())
