# %% [markdown]
# # What does a compiled engine buy?
#
# A framework runs a model operator by operator. A compiler sees the whole graph: it fuses operators, plans memory and picks kernels for the
# machine at hand. TensorRT does that for NVIDIA GPUs, OpenVINO and ONNX Runtime for CPUs, `torch.compile` for both. The road is the same
# for all: export, build once, keep the files, load, compare with the baseline, check the answers. On the way things break; here they break
# on purpose, and are mended.

# %% tags=["parameters"]
model: str = "text-encoder"
precision: str = "fp32"
device: str = "cpu"
batch: int = 1
sequence: int = 128
threads: int = 0
profiles: str = "1x16/8x128/32x256"
workspace: int = 2048
rounds: int = 12
seconds: float = 1.0
seed: int = 0

# %% [markdown]
# A misspelt or ill-typed setting stops the notebook here, before anything runs.

# %%
from accel_helpers import bench, charts, claims, compilation, engines, environment, lesson
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
here = environment.describe()
compilers = [name for name in engines.names() if name != "null"]
kinds = [(name, kind) for kind in dict.fromkeys([precision, "bf16"]) for name in compilers if kind == precision or name != "compiled"]
candidates = [config.replace(engine=name, precision=kind) for name, kind in kinds]
answers = [(one, bench.support(one)) for one in candidates]
rows = [[one.engine, one.precision, "yes" if answer else "no", answer.reason] for one, answer in answers]
lesson.table([["Engine", "Precision", "Runs here", "Why not"], *rows])

# %% [markdown]
# An engine may have more than one way to run: its modes. What each does, and whether it can here:

# %%
modes = [config.replace(engine=name, mode=mode) for name in compilers for mode in engines.get(name).modes]
rows = [[one.engine, one.mode, engines.get(one.engine).modes[one.mode], bench.support(one).reason or "yes"] for one in modes]
lesson.table([["Engine", "Mode", "What it does", "Runs here, or why not"], *rows])

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
# ### Claim C4: TensorRT is 1.5 to several times faster than PyTorch
#
# TensorRT needs an NVIDIA GPU. Where there is none, the compiled engines of this machine stand in, and the claim says so.

# %%
lesson.claim(claims.faster_engine(comparison))

# %% [markdown]
# ## What was exported, and how it was checked
#
# The engines that read ONNX get one file with open batch and sequence axes. An axis that was silently fixed is the classical fault of this
# step, so the file runs at several sizes, and every output is compared with PyTorch's before anything is built from it.

# %%
lesson.exported(comparison.measurements)

# %% [markdown]
# Two programs promise a simpler graph. Their result is accepted only if inputs, outputs and open axes are what they were and every output
# is the same at all of those sizes; the last rows show what happens when a simplifier is told one batch.

# %%
asis, told = (compilation.simplifications(model, told_batch=size) for size in (0, 2))
lesson.table(charts.simplifications(asis, told))

# %% [markdown]
# ## What does fusion do to the graph?
#
# The same graph before and after each compiler. Constants and reshapes cost next to nothing; what counts is how many operators compute.

# %%
fusion = compilation.fused(config.replace(precision="fp32", device="cpu"))
charts.graph_counts(fusion)

# %% [markdown]
# A piece of it, with the boxes that became one in one colour:

# %%
charts.graph_piece(fusion)

# %% [markdown]
# ## Claim C5: an engine is slow to build the first time and free afterwards
#
# Building is one cost; loading the kept files and the first call come again with every start of a process. Engines that read ONNX share one
# export, and the first of them pays for it. `torch.compile` keeps only weights in its files and compiles at the first call.

# %%
reused = compilation.reuse(config.replace(model="tiny-cnn", precision="fp32", device="cpu"), tries=1)
lesson.table(charts.reuse(reused))
lesson.claim(claims.build_once(comparison, reused))

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
# ### How soon is a fresh process ready?
#
# `torch.compile` makes its programs when they are first called: the seconds stand in C5 above. Ahead of time (`mode=aot`), they are made
# when the plan is built, and a process only loads them. One try each on a tiny network, so the table has no intervals; six give one.

# %%
tiny = config.replace(model="tiny-cnn", precision="fp32", device="cpu")
starters = [tiny, tiny.replace(engine="compiled", mode="aot")]
lesson.table(charts.cold_starts(compilation.cold_start([one for one in starters if bench.support(one)], tries=1)))

# %% [markdown]
# ## Claim C6: fusion and memory reuse lower peak memory
#
# A value that nobody reads any more can leave its memory to the next. How much that must save can be read off the graph; how much it does
# save is measured with ONNX Runtime's own switches, each way in fresh processes, at batch 4.

# %%
peaks = compilation.peaks(config.replace(precision="fp32", device="cpu", batch=4), tries=rounds // 2, ways=compilation.SWITCHES)
charts.peaks(peaks)

# %% [markdown]
# What is measured beyond the graph's own figure is taken by the kernels and the arena for themselves. The claim holds if fusion by itself,
# freeing by itself and the arena by itself each lower the peak for certain.

# %%
lesson.claim(claims.memory_falls(peaks, here))

# %% [markdown]
# ## What does a call cost before any arithmetic?
#
# Each operator of a framework is found, checked and launched. On a GPU that happens on the host, microseconds each, while the device
# waits; CUDA graphs record the launches once and replay them. The same price is there on a CPU, and a compiler saves it by fusing.

# %%
price = lesson.predict("How many microseconds does one operator more cost in PyTorch eager?", 10.0, "us")

# %% [markdown]
# Networks of 8, 64 and 256 operators on sixteen numbers: next to no arithmetic, so the slope is the price of an operator.

# %%
dispatch = compilation.overhead(config.replace(precision="fp32"))
lesson.reveal(price, 1e6 * dispatch.chains[0].each.value)
charts.launch_times(dispatch)

# %% [markdown]
# ### Exercise: is it worth it?
#
# A call holds `operators` operators that cost `each` seconds to launch, and takes `call` seconds. If launching became free, how many times
# faster could the call be at most? If launching is hidden behind the work, the answer is 1; if the whole call is launching, infinity.


# %% tags=["exercise"]
def without_launches(operators, each, call):
    ### STUB
    return None  # one line: the call, over what is left of it
    ### SOLUTION
    return call / (call - operators * each) if operators * each < call else float("inf")
    ### END


lesson.check(
    without_launches,
    ((100, 1e-5, 0.002), 2.0),
    ((0, 1e-5, 0.002), 1.0),
    ((300, 1e-5, 0.002), float("inf")),
    hint="call / (call - operators * each)",
)

# %% [markdown]
# For this model at batch 1, with the price just measured:

# %%
lesson.apply(without_launches, dispatch.operators, dispatch.chains[0].each.value, dispatch.seconds.value, show=charts.ratio)

# %% [markdown]
# ### Claim C9: CUDA graphs remove launch overhead for small models
#
# It holds if a replayed graph takes at least half of the price away. On a CPU there are no CUDA graphs, and the claim stays untested.

# %%
lesson.claim(claims.graphs_remove_overhead(dispatch))

# %% [markdown]
# ## Dynamic shapes, done wrong
#
# `torch.compile` makes a program for each shape that it cannot generalise, and gives up after some: from then on it runs eagerly, with a
# line in a log that few read. The engine here raises an error in its place. Ten batch sizes under each policy:

# %%
attention = tiny.replace(model="tiny-attention", sequence=32)
counted = compilation.recompilations(attention)
print(counted.sentence)
lesson.table([row for row in charts.recompilations(counted) if row[3] != "0" or row[4] != "compiled"])

# %% [markdown]
# TensorRT wants to know beforehand which sizes will come: a least, a usual and a greatest for each open axis. The batch of one model,
# declared wrong in several ways and right in one; the engines are really built, ahead of time, and need no GPU for that.

# %%
shapes = compilation.dynamic_shapes("tiny-attention")
lesson.table(charts.shapes_table(shapes))

# %% [markdown]
# ### Claim C15: wrong dynamic dimensions break the build; minimum, optimum and maximum shapes mend it
#
# It holds if TensorRT refuses every wrong declaration when it builds. One that passes is worse than one that fails.

# %%
lesson.claim(claims.shapes_mend(shapes, here))

# %% [markdown]
# ### Exercise: a profile for your traffic
#
# A service saw these batch sizes. Write its profile: the least, the one seen most often (of several, the greatest), and the greatest.


# %% tags=["exercise"]
def profile_for(batches):
    ### STUB
    return None  # one line: (least, usual, greatest)
    ### SOLUTION
    return min(batches), max(batches, key=lambda size: (batches.count(size), size)), max(batches)
    ### END


lesson.check(profile_for, (([4, 1, 4, 8],), (1, 4, 8)), (([2, 16],), (2, 16, 16)), hint="min, the most frequent, max")

# %% [markdown]
# ## Builds that fail
#
# Refusals that fill the forums, each caused here, explained from TensorRT's own message and the graph, cured, and built again.

# %%
refused = compilation.failures()
lesson.table(charts.attempts_table(refused))

# %% [markdown]
# ### Claim C14: simplifying the ONNX graph makes builds succeed
#
# It holds if one tool mends every refused graph and spoils none of the healthy ones.

# %%
simplified = compilation.simplifying()
lesson.table(charts.simplified_table(simplified))
lesson.claim(claims.simplifying_helps(simplified, here))

# %% [markdown]
# ## The command that fits your version
#
# `--workspace` is gone since TensorRT 10, `--fp16` and `--int8` since 11: networks are strongly typed, and the types are in the graph. One
# intent, made from this notebook's settings, as each version wants it (`accel commands` also prints the Python and the Polygraphy):

# %%
intent = compilation.intent_of(config.replace(engine="tensorrt", device="cuda", precision="fp16"))
fitting = {version: compilation.commands_for(intent, version) for version in ("8", "10", "11", "rtx")}
for version, one in fitting.items():
    print(f"# TensorRT {version}\n{one.trtexec}\n")

# %% [markdown]
# Why TensorRT 11 wants another line than TensorRT 8:

# %%
lesson.table([["What changed", "Why"], *([one.what, one.why] for one in fitting["11"].differences)])

# %% [markdown]
# ## Do two engines answer the same?
#
# The same inputs through each engine of this notebook, at other sizes than the ones measured, held against PyTorch in FP64.

# %%
differences = compilation.compare([one for one in plans if one.engine != "compiled"], ((1, 16), (7, 21)), against="fp64")
lesson.table(charts.differences_table(differences))

# %% [markdown]
# And when they do not? A graph that was made wrong: one operator in its middle was replaced. Halving the graph again and again finds it.

# %%
done, culprit = compilation.wrong_operator("tiny-attention")
print(done)
lesson.table(charts.culprit_table([culprit]))

# %% [markdown]
# ## Claim C17: TF32 is nearly as fast as FP16 with FP32's range
#
# TF32 keeps FP32's eight bits of exponent and FP16's ten of mantissa. What that means for errors can be emulated anywhere; what it means
# for time takes a GPU.

# %%
formats = compilation.formats()
lesson.table(charts.formats(formats))
lesson.claim(claims.tf32_is_nearly_fp16(formats, here, comparison))

# %% [markdown]
# ## Claim C19: torch.compile and Optimum are a free lunch
#
# Free means: faster for certain, still right, and ready within two minutes. The plans of this notebook, the soonest paid back first.

# %%
lesson.table(charts.lunches(compilation.rank(comparison)))
lesson.claim(claims.free_lunch(comparison))

# %% [markdown]
# ## What it means
#
# Two things make a compiled engine faster, and the first chart keeps them apart: fewer, larger operators (compare within one precision),
# and instructions for a smaller type (compare the precisions). The files belong to the processor and the versions that built them; the
# store refuses them elsewhere. Take the free lunches first, in the order of the last table. Then the engine made for the hardware, with
# the shapes that really come. And when a build fails, look for the node before you look for a flag: most refusals name it, and a
# simplifier mends only what never mattered.
