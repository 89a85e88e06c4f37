# %% [markdown]
# # What is this machine, and what can it reach?
#
# A model is fast or slow *on a machine*. Before touching a model, find out four things: what is in the machine, whether its software fits
# together, how fast it can possibly be, and which route to acceleration follows from that. Everything here is measured on the spot.
#
# The next cell holds the settings. They have the same names everywhere: here, in `accel run threads=1`, in a YAML file.

# %% tags=["parameters"]
threads: int = 0
rounds: int = 12
seconds: float = 3.0

# %% [markdown]
# A misspelt or ill-typed setting stops the notebook here, before anything runs.

# %%
from accel_helpers import charts, claims, environment, instructions, lesson
from accel_helpers.config import RunConfig

config = RunConfig.from_namespace(globals())

# %% [markdown]
# ## What is here, and does it fit together?
#
# The first call reads the processor's flags, the CPUs and the memory that this process may use (a container's quota counts, not the host's
# cores), the GPUs, and the versions of everything that matters. The second compares them: each problem comes with the command that mends
# it. The third says which route to take on hardware like this. No GPU is a normal answer.

# %%
here = environment.describe()
tables = environment.as_rows(here, environment.findings(here), environment.route(here))
for title, rows in tables.items():
    lesson.table(rows, title)

# %% [markdown]
# ## How fast can it be?
#
# Three limits bound every model: how many bytes a second come from memory, how many operations a second the arithmetic units do in each
# number type, and what it costs to call one operator at all. First a guess.

# %%
question = "How many operations can this machine do in the time in which one number arrives from memory?"
guess = lesson.predict(question, 10.0, "operations")

# %% [markdown]
# Now measure them, in a process of its own: copying and reading large arrays, square matrix products in each type that this processor has
# instructions for, and one operator on a tiny tensor.

# %%
ceilings = environment.ceilings(seconds=2 * config.seconds)
lesson.table(environment.as_rows(here, (), (), ceilings)["Measured ceilings"], "Measured ceilings")

# %% [markdown]
# The ratio of the two rates is the *machine balance*. A layer that does fewer operations on each number that it reads waits for memory.

# %%
balance = 4 * ceilings.rate("gemm", "fp32") / ceilings.bandwidth()
lesson.reveal(guess, balance)

# %% [markdown]
# ## Exercise: the least time of a layer
#
# A layer that does `flops` operations and moves `moved` bytes needs at least the time of whichever takes longer, because both can happen at
# once. This is the roofline model.


# %% tags=["exercise"]
def least_seconds(flops, moved, flops_per_second, bytes_per_second):
    ### STUB
    return None  # one line
    ### SOLUTION
    return max(flops / flops_per_second, moved / bytes_per_second)
    ### END


lesson.check(least_seconds, ((2e9, 1e6, 1e11, 1e10), 0.02), ((1e6, 1e9, 1e11, 1e10), 0.1), hint="two times, and the longer one counts")

# %% [markdown]
# Your bound for one feed-forward layer of the text encoder on this machine, in FP32: 384 numbers a token become 1,536. The first line is
# for one sentence of 128 tokens, the second for a single token. Which limit binds each of them?

# %%
arithmetic, memory = ceilings.rate("gemm", "fp32", threads=config.threads), ceilings.bandwidth(threads=config.threads)
for tokens in (128, 1):
    flops, moved = 2 * tokens * 384 * 1536, 4 * 384 * 1536
    lesson.apply(least_seconds, flops, moved, arithmetic, memory, show=charts.seconds)

# %% [markdown]
# ## Claim C18: on a CPU, memory bandwidth and AVX-512 (now AMX) decide
#
# Two parts, two experiments on one thread. A matrix times a vector uses each number once, so it should run at the memory's rate. And a
# matrix product runs in processes that are alike but for the vector instructions they may use: all of them, or held back to an older set.

# %%
guess = lesson.predict("How many times slower is an FP32 matrix product without the newest instructions?", 2.0, "times")

# %% [markdown]
# The processes take turns in random order; the ratio of their CPU times carries a 95 % interval over the rounds.

# %%
effect = instructions.effect(rounds=config.rounds)
for level in list(effect.held)[:1]:
    lesson.reveal(guess, effect.speedup(level).value)

# %% [markdown]
# The claim holds if the newest instructions gain at least half as much again *and* the matrix times a vector reaches half of the
# memory's rate.

# %%
lesson.claim(claims.vectors_and_bandwidth(effect, ceilings))

# %% [markdown]
# ## What it means
#
# You know what this machine has, what is missing and how to mend it, and the three limits. A processor with matrix instructions for a
# smaller type (BF16, INT8) has several ceilings: the same model may run under a higher one. That is why the route above begins where it
# does.
