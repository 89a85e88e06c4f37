# %% [markdown]
# # What does a compiled engine buy?
#
# A framework runs a model operator by operator. A compiler sees the whole graph: it fuses operators, plans memory and picks kernels for the
# machine at hand. TensorRT does that for NVIDIA GPUs, OpenVINO and ONNX Runtime for CPUs, `torch.compile` for both. The road is the same
# for all: export, build once, keep the files, load, compare with the baseline, check the answers.

# %% tags=["parameters"]
model: str = "text-encoder"
precision: str = "fp32"
device: str = "cpu"
batch: int = 1
sequence: int = 128
threads: int = 0
rounds: int = 12
seconds: float = 1.0
seed: int = 0

# %% [markdown]
# A misspelt or ill-typed setting stops the notebook here, before anything runs.

# %%
from accel_helpers import bench, charts, claims, engines, lesson
from accel_helpers.config import RunConfig

config = RunConfig.from_namespace(globals())

# %% [markdown]
# ## Which engines can run here?
#
# The engines are the files of one folder (`null` computes nothing and has no part in this). Each is asked for the precision of the settings
# and for BF16, since using a smaller type is half of what a compiler can do; `compiled` only once, because it compiles anew in every
# process, and a second time would take as long as all the others together. Each says for itself what it can run here, or what stands in
# the way; none runs something else in its place.

# %%
compilers = [name for name in engines.names() if name != "null"]
kinds = [(name, kind) for kind in dict.fromkeys([precision, "bf16"]) for name in compilers if kind == precision or name != "compiled"]
candidates = [config.replace(engine=name, precision=kind) for name, kind in kinds]
answers = [(one, bench.support(one)) for one in candidates]
rows = [[one.engine, one.precision, "yes" if answer else "no", answer.reason] for one, answer in answers]
lesson.table([["Engine", "Precision", "Runs here", "Why not"], *rows])

# %% [markdown]
# ## Predict
#
# One of them will be the fastest for this model. Which, and by how much?

# %%
plans = sorted((one for one, answer in answers if answer), key=lambda one: (one.engine, one.precision) != ("pytorch", precision))
names = list(dict.fromkeys(one.engine for one in plans))
which = lesson.predict("Which engine is the fastest?", names[-1], choices=names)
times = lesson.predict("How many times faster than PyTorch eager is it?", 2.0, "times")

# %% [markdown]
# ## Build, then compare
#
# Each plan is built once, in a process of its own; a second run finds the files and checks their hashes. Then all of them take turns in one
# interleaved run, each again in a process of its own. PyTorch eager comes first: it is the baseline of every ratio.

# %%
comparison = bench.compare(plans)
charts.comparison(comparison.measurements, comparison.verdicts)

# %% [markdown]
# An interval that crosses 1 gives no winner. Wall time is what a caller waits; CPU time is what survives on a machine with neighbours.

# %%
best = max(comparison.verdicts, key=lambda verdict: verdict.speedup.value)
fastest = next(one for one in comparison.measurements if one.digest == best.candidate)
lesson.reveal(which, fastest.plan.engine)
lesson.reveal(times, best.speedup.value)

# %% [markdown]
# ## Speed is one column of several
#
# Memory, file size and the task metric belong beside it. A faster engine with another metric is another model.

# %%
lesson.table(charts.table(comparison.measurements, comparison.verdicts))

# %% [markdown]
# ## What was exported, and how it was checked
#
# The engines that read ONNX get one file with open batch and sequence axes. An axis that was silently fixed is the classical fault of this
# step, so the file runs at several sizes, and every output is compared with PyTorch's before anything is built from it.

# %%
lesson.exported(comparison.measurements)

# %% [markdown]
# ## Claim C4: TensorRT is 1.5 to several times faster than PyTorch
#
# TensorRT needs an NVIDIA GPU. Where there is none, the compiled engines of this machine stand in, and the claim says so.

# %%
lesson.claim(claims.faster_engine(comparison))

# %% [markdown]
# ## Claim C5: an engine is slow to build the first time and free afterwards
#
# Building is one cost; loading the kept files and the first call come again with every start of a process. Engines that read ONNX share one
# export, and the first of them pays for it. `torch.compile` keeps only weights in its files and compiles at the first call.

# %%
lesson.claim(claims.build_once(comparison))

# %% [markdown]
# ### Exercise: when has the build paid for itself?
#
# Building costs `build` seconds once; each call then takes `after` seconds in place of `before`. After how many calls is the time won back?
# If a call is not faster, the answer is infinity.


# %% tags=["exercise"]
def break_even(build, before, after):
    ### STUB
    return None  # one or two lines
    ### SOLUTION
    return build / (before - after) if after < before else float("inf")
    ### END


lesson.check(break_even, ((10.0, 0.03, 0.01), 500.0), ((5.0, 0.01, 0.02), float("inf")), hint="seconds to win back / seconds won by a call")

# %% [markdown]
# With the figures of the fastest engine:

# %%
baseline = comparison.measurements[0]
lesson.apply(break_even, fastest.build_seconds, baseline.p50.value, fastest.p50.value, show="{:,.0f} calls".format)

# %% [markdown]
# ## What it means
#
# Two things make a compiled engine faster, and the chart keeps them apart: fewer, larger operators (compare within one precision), and
# instructions for a smaller type (compare the precisions). The files belong to the processor and the versions that built them; the store
# refuses them elsewhere. TensorRT walks the same road: it builds without a GPU, from the same exported file, and runs only on one.
