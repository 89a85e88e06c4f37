# %% [markdown]
# # How fast is it now, and how fast could it be?
#
# Every later figure in this workbook is a ratio to one number: how fast the model runs as it comes. This notebook finds that number for one
# request at a time (scenario A) and for growing batches (scenario B), shows two ways to get it wrong, and says how much speed-up is left.
#
# `engine` and `precision` say what counts as "as it comes".

# %% tags=["parameters"]
model: str = "text-encoder"
engine: str = "pytorch"
precision: str = "fp32"
device: str = "cpu"
sequence: int = 128
threads: int = 0
rounds: int = 12
seconds: float = 2.0
seed: int = 0

# %% [markdown]
# A misspelt or ill-typed setting stops the notebook here, before anything runs.

# %%
from pathlib import Path

from accel_helpers import bench, charts, claims, environment, lesson, panel, profiling
from accel_helpers.config import RunConfig

config = RunConfig.from_namespace(globals())

# %% [markdown]
# ## The wrong time first
#
# A GPU works on a queue: a call returns when its kernels are *queued*, not when they are done. A clock stopped at that moment measures the
# launch. A CPU behind a thread pool or an asynchronous request does the same; without a GPU, that is what runs here.

# %%
guess = lesson.predict("How many times too fast does a call look when the clock stops at its return?", 10.0, "times")

# %% [markdown]
# The same calls, read from two clocks: one stops when the call returns, the other one line later.
#
# ```python
# result = session.run(inputs)    # the first clock stops here: wrong
# session.synchronise()           # the missing line; then the second clock stops
# ```

# %%
launch = profiling.launch(config)
lesson.reveal(guess, launch.factor)
returned, done = charts.seconds(launch.started_median), charts.seconds(launch.finished_median)
print(f"{launch.how}: {returned} until a call returned, {done} until its work was done")

# %% [markdown]
# From here on every time is taken after the device has finished, and every measurement checks its outputs: a session that returns before
# its work is done is called INVALID.
#
# ## Scenario A: one request at a time
#
# Batch 1, one client, next request only after the last answer: what an interactive user feels. First a guess about the very first call.

# %%
guess = lesson.predict("How many times slower than a typical call is the first one?", 2.0, "times")

# %% [markdown]
# The model runs in a fresh process: load, first call, warm-up until the call time is steady, then short rounds. The median carries a 95 %
# interval over the *rounds*, because calls in a row resemble each other; a percentile is printed only where there are enough calls for one.

# %%
single = bench.measure(config)
charts.latency(single)

# %% [markdown]
# Everything that belongs to the figure, in one line, and the answer to the guess.

# %%
print(charts.describe(single))
lesson.reveal(guess, single.first_call / single.p50.value)

# %% [markdown]
# ### Claim C3: the first call is slow and must be left out
#
# It holds if the first call takes at least one and a half times the median.

# %%
lesson.claim(claims.first_call(single))

# %% [markdown]
# ### Is it right?
#
# A fast wrong answer is worth nothing, so the baseline has to reproduce the task figure that is known for this model. Every later plan is
# judged by its distance from it.

# %%
lesson.score(single)

# %% [markdown]
# ## Scenario B: growing batches
#
# With more items per call the fixed costs of a call are shared and the matrix products grow. What does that buy here?

# %%
guess = lesson.predict("How many times more items a second at batch 32 than at batch 1?", 8.0, "times")

# %% [markdown]
# Five batch sizes take turns in random order, each in a process of its own, so that a busy minute hits all of them alike. Fewer and shorter
# rounds than above: a curve needs less evidence than a baseline.

# %%
batches = [1, 2, 4, 8, 32]
short = config.replace(rounds=max(6, config.rounds // 2), seconds=config.seconds / 4)
sweep = bench.compare([short.replace(batch=batch) for batch in batches])
charts.batch_sweep(sweep.measurements)

# %% [markdown]
# The last point against the first.

# %%
lesson.reveal(guess, sweep.verdicts[-1].speedup.value)

# %% [markdown]
# ### Exercise: find the knee
#
# Past the knee a larger batch only makes everyone wait longer. Take it as the smallest batch that reaches 90 % of the best throughput.


# %% tags=["exercise"]
def knee(batches, rates):
    ### STUB
    return None  # one line: the first batch whose rate is at least 0.9 * max(rates)
    ### SOLUTION
    return next(batch for batch, rate in zip(batches, rates, strict=True) if rate >= 0.9 * max(rates))
    ### END


lesson.check(knee, (([1, 2, 4], [10, 30, 31]), 2), (([1, 2], [10, 10.5]), 1), hint="the first that is good enough, not the best")

# %% [markdown]
# Your knee for this model on this machine:

# %%
lesson.apply(knee, batches, [one.throughput.value for one in sweep.measurements])

# %% [markdown]
# ### Claim C7: throughput rises almost linearly with the batch up to a knee, and latency rises with it
#
# "Almost linearly" is taken as at least three quarters of the ideal: batch 2 must give 1.5 times the items a second. A CPU whose cores
# are already busy at batch 1 has no idle units for a second item; a large GPU has thousands.

# %%
lesson.claim(claims.batch_growth(sweep))

# %% [markdown]
# ## Where does the time go?
#
# The profiler names the operators. It slows what it watches, so its times show *shares*; the measurement above says how long a call takes.
# The trace opens in Perfetto or `chrome://tracing`.

# %%
profile = profiling.profile(config, Path("out/01_baseline.trace.json"))
print(f"Chrome trace: {profile.trace}")
charts.operator_time([(one.name, one.seconds) for one in profile.operators], profile.calls)

# %% [markdown]
# On a machine with an NVIDIA GPU, Nsight Systems shows the gaps between kernels, copies and CPU work; each call carries a named range.

# %%
print(profiling.nsight(config))

# %% [markdown]
# ## How near is the ceiling?
#
# A call needs a number of multiplications, and has to read every weight at least once. Divide by what this machine reached at each in its
# best case, and you get the share of the ceiling in use. The rest bounds *every* speed-up that does the same arithmetic in the same type.

# %%
roofs = profiling.roofs(config, environment.ceilings(seconds=config.seconds))
charts.ceiling_share(single, roofs)

# %% [markdown]
# ### Exercise: what can faster matrix products buy?
#
# If matrix products take a share `p` of a call and become `k` times faster, the rest stays as it is (Amdahl's law).


# %% tags=["exercise"]
def amdahl(p, k):
    ### STUB
    return None  # one line: old time is 1; new time is the untouched rest plus the shrunken share
    ### SOLUTION
    return 1 / ((1 - p) + p / k)
    ### END


lesson.check(amdahl, ((0.5, 2), 1 / 0.75), ((0.9, 10), 1 / 0.19), ((0.0, 5), 1.0), hint="speed-up = 1 / (rest + share / k)")

# %% [markdown]
# With the share that the profiler saw in matrix products, and products that cost nothing at all:

# %%
print(f"matrix products and attention take {profile.arithmetic:.0%} of the time")
lesson.apply(amdahl, profile.arithmetic, float("inf"), show=charts.ratio)

# %% [markdown]
# ### Claim C21: a utilisation above 70 % means well optimised
#
# Utilisation says how long *some* work ran, not how much of the hardware it used. Beside it stands the share of the ceiling.

# %%
lesson.claim(claims.busy_is_not_fast(single, roofs))

# %% [markdown]
# ### Reading the three patterns
#
# | What you see | What it usually means | What to try |
# |---|---|---|
# | low utilisation, high latency | the processor waits: preprocessing, copies or launches | larger batches, a compiled graph |
# | memory full, low utilisation | weights or activations move more than they are used | a smaller type, a smaller batch |
# | throughput grows slowly with the batch | the arithmetic units are full already | a smaller type, a better kernel, not a larger batch |
#
# And this model, here:

# %%
print(*profiling.reading(single, sweep), sep="\n")

# %% [markdown]
# ## Try it yourself
#
# Change the precision, the batch or the engine and watch the chart. An option that cannot run here says why. Stop ends a run at once.

# %%
panel.explore(short, earlier=sweep.measurements)

# %% [markdown]
# ## What it means
#
# You now have a latency with an interval, a throughput curve with its knee, the operators that cost the time, and a bound on what can be
# gained without changing the arithmetic. Larger gains need other arithmetic: a smaller type. The order of work: measure (done), then what
# costs nothing (the next notebooks), then targeted work, and after each step check that the answers are still right.
