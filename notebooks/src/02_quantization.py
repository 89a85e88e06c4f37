# %% [markdown]
# # Smaller numbers: what do they win, and what do they cost?
#
# A trained model keeps its weights as 32-bit floats. Eight-bit integers take a quarter of the room, and some processors multiply four of
# them where they multiply one float. Two questions fill the trackers of every runtime: *why is my INT8 model slower?* and *why did it lose
# accuracy?* Here both are answered for your model on your machine: size, speed and loss are predicted, measured and explained.

# %% tags=["parameters"]
model: str = "text-encoder"
engine: str = "onnx_runtime"
device: str = "cpu"
batch: int = 1
sequence: int = 128
threads: int = 0
calibration: int = 64
calibrator: str = "minmax"
per_channel: bool = True
symmetric: bool = False
rounds: int = 12
seconds: float = 1.0
seed: int = 0

# %% [markdown]
# A misspelt or ill-typed setting stops the notebook here, before anything runs; so does an engine that cannot quantize your model.

# %%
from accel_helpers import bench, charts, claims, engines, lesson, models, panel, quantize
from accel_helpers.accuracy import Budget
from accel_helpers.config import RunConfig
from accel_helpers.records import Census

config = RunConfig.from_namespace(globals())
static = config.replace(precision="int8", scheme="static")
bench.require(static)

# %% [markdown]
# ## Which ways are there?
#
# *Dynamic*: weights become integers when the model is built, activations at every call, with the range of that call. *Static*: the ranges
# of the activations are taken beforehand from calibration samples. *Weight only*: the products stay in float, and the weights are unpacked
# for them. *Accuracy control* takes layers back to float until a metric is kept; *QAT* trains with the rounding in place.

# %%
ways = [
    config.replace(engine=name, precision=precision, scheme=scheme)
    for name in engines.names()
    for precision, schemes in engines.get(name).schemes.items()
    for scheme in schemes
]
rows = [[one.engine, one.precision, one.scheme, "yes" if (can := bench.support(one)) else "no", can.reason] for one in ways]
lesson.table([["Engine", "Precision", "Scheme", "Runs here", "Why not"], *rows])

# %% [markdown]
# ### Exercise: eight bits for a range of floats
#
# An unsigned byte `q` stands for the float `scale * (q - zero)`. The range must hold 0, because padding and rectifiers write it. Which
# `scale` and which whole `zero` put `low` at 0 and `high` at 255?


# %% tags=["exercise"]
def scale_and_zero(low, high):
    ### STUB
    return None  # three lines: stretch the range to hold 0; the step between two bytes; the byte that stands for 0.0
    ### SOLUTION
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255
    return scale, round(-low / scale)
    ### END


lesson.check(
    scale_and_zero,
    ((-1.0, 1.55), (0.01, 100)),
    ((0.0, 5.1), (0.02, 0)),
    ((1.0, 2.55), (0.01, 0)),
    hint="(high - low) / 255, then -low / scale",
)

# %% [markdown]
# ## Predict
#
# An FP32 weight has four bytes, an INT8 weight one. The processor may multiply integers faster, and may not.

# %%
size = lesson.predict("How many times smaller are the files of the static INT8 model (this notebook's engine)?", 4.0, "times")
speed = lesson.predict("How many times faster does it answer than FP32 on the same engine?", 2.0, "times")
loss = lesson.predict("How many points of the task metric does the worst of the plans below lose?", 1.0, "points")

# %% [markdown]
# ## Measure
#
# FP32 and BF16 of the same engines stand beside every quantized plan, because a speed-up over FP32 says little where BF16 is free. A model
# that reads sequences is quantized statically and dynamically, another one statically with a scale per channel and per weight. All plans
# take turns in one interleaved run. Each point is a plan: to the right is faster, below the dashed line is over the budget of one point.

# %%
plain = [config.replace(engine=name, precision=kind) for name in dict.fromkeys([engine, "openvino"]) for kind in ("fp32", "bf16")]
other = {"scheme": "dynamic"} if models.get(model).has_sequence else {"scheme": "static", "per_channel": False}
eight = [static, static.replace(**other)]
plans = [one for one in [*plain, *eight, static.replace(engine="openvino")] if bench.support(one)]
comparison = panel.compare_live(list({bench.plan_of(one): one for one in plans}.values()))

# %% [markdown]
# The guesses against the figures: size and speed of this notebook's engine, the loss of the worst plan.

# %%
base, judged = comparison.measurements[0], comparison.verdicts
small, verdict = next(pair for pair in zip(comparison.measurements[1:], judged, strict=True) if pair[0].plan == bench.plan_of(static))
lesson.reveal(size, base.size_bytes / small.size_bytes)
lesson.reveal(speed, verdict.speedup.value)
lesson.reveal(loss, 100 * max(0.0, *(-(one.score_change or 0.0) for one in judged)))

# %% [markdown]
# ### Claims C1 and C2: four times smaller, and faster
#
# C1 holds if every INT8 plan is at least three and a half times smaller than FP32 of its engine, C2 if every quantized plan is faster than
# it.

# %%
charts.size_and_memory(comparison.measurements)

# %% [markdown]
# What the files of this comparison say of both.

# %%
lesson.claim(claims.smaller(comparison))
lesson.claim(claims.quantized_is_faster(comparison))

# %% [markdown]
# ## Is it still right?
#
# A change of the metric has an interval too. Both plans answered the *same* samples, so only those count on which one is right and the
# other wrong: everything else cancels. "Not enough samples" is an answer.

# %%
lesson.table(charts.accuracy(comparison.measurements, comparison.verdicts))

# %% [markdown]
# ### Exercise: is it noise?
#
# Of `samples`, the quantized model lost `lost` that FP32 had right, and won `won` that it had wrong. About how far from zero must the
# difference be to count? Two standard errors of the paired difference, as a share of the samples.


# %% tags=["exercise"]
def two_standard_errors(lost, won, samples):
    ### STUB
    return None  # one line: a difference of counts varies like the square root of their sum
    ### SOLUTION
    return 2 * (lost + won) ** 0.5 / samples
    ### END


lesson.check(two_standard_errors, ((8, 8, 100), 0.08), ((9, 0, 300), 0.02), hint="2 * sqrt(lost + won) / samples")

# %% [markdown]
# For the INT8 plan above: how large would a loss have to be before these samples could show it?

# %%
changes = verdict.changes
lost, won = sum(one < 0 for one in changes), sum(one > 0 for one in changes)
print(f"lost {lost}, won {won} of {len(changes)}")
lesson.apply(two_standard_errors, lost, won, max(1, len(changes)), show="{:.2%}".format)

# %% [markdown]
# ## What was really quantized?
#
# "INT8" names a wish. The census counts the layers of the *built* model by the type they run in, what stayed behind and why, and the
# conversions that did not fuse into a layer. A plan with nothing quantized is refused; a plan with little quantized is shown here.

# %%
charts.census([one for one in comparison.measurements if one.plan.quantization])

# %% [markdown]
# Why so strict? Two calls that many pages still show, tried here on a convolution: one quantizes nothing and says nothing, the other fails
# at its first call. PyTorch deprecates both; this workbook goes through torchao.

# %%
tried = [[one.call, one.outcome, one.cause] for one in quantize.attempts()]
lesson.table([["Call", "What happens", "Why"], *tried])

# %% [markdown]
# ### Exercise: how small can the file get?
#
# A `share` of the parameters takes `bits` each, the others 32. How many times smaller is the file than FP32? (It is Amdahl's law, in
# bytes.)


# %% tags=["exercise"]
def times_smaller(share, bits):
    ### STUB
    return None  # one line: 1 over the bytes that are left
    ### SOLUTION
    return 1 / (share * bits / 32 + 1 - share)
    ### END


lesson.check(times_smaller, ((1.0, 8), 4.0), ((0.5, 8), 1.6), ((0.0, 4), 1.0), hint="1 / (share * bits / 32 + the rest)")

# %% [markdown]
# With the share that the census of the static plan counted; the files were measured above.

# %%
share = Census.from_dict(small.report["census"]).share("parameters")
lesson.apply(times_smaller, share, 8, show=charts.ratio)
print(f"measured: {charts.ratio(base.size_bytes / small.size_bytes)}")

# %% [markdown]
# ## Which samples to calibrate with?
#
# A static plan fixes the range of every activation from a few samples. What lies beyond is cut off, and a range far too wide wastes the
# bytes. Three wrong ways are on offer: one class only, floats that nobody normalised, noise.

# %%
ruin = lesson.predict("Which calibration data costs the most?", "noise", choices=["one_class", "unnormalised", "noise"])

# %% [markdown]
# First your model, judged on a hundred labelled samples. The detector has looked at the calibration samples alone, before anything was
# built.

# %%
lesson.table(charts.trials(quantize.experiment(static, judged=100)))

# %% [markdown]
# A hundred samples tell a ruin from a scratch and little between. So the same with a small network for handwritten digits, which is built
# in a moment and judged on a thousand.

# %%
digits = static.replace(model="digits")
trials = quantize.experiment(digits)
lesson.table(charts.trials(trials))
lesson.reveal(ruin, trials.worst.data)

# %% [markdown]
# ### Claim C11: unrepresentative calibration data ruins accuracy, varied data repairs it
#
# It holds if every kind of wrong data loses more than a point for certain, and the model's own data does not.

# %%
lesson.claim(claims.calibration_data(trials, base.environment))

# %% [markdown]
# How much is the luck of the draw? The same plan with eight other draws of sixteen samples from the same data.

# %%
spread = quantize.spread(digits.replace(calibration=16))
print(f"task metric {spread.score.value:.4f} [{spread.score.low:.4f}, {spread.score.high:.4f}] over {len(spread.trials)} draws")

# %% [markdown]
# ## Which layers are sensitive?
#
# One layer at a time is rounded to eight bits, the others stay in FP32, and the noise in the model's answer is taken as a ratio in
# decibels: 20 dB is a tenth of the signal's size, 40 dB a hundredth. The integers are simulated, so a processor's overflow does not mix in.

# %%
noise = quantize.layer_noise(models.get(model), bench.plan_of(static).quantization)
charts.layer_noise(noise)

# %% [markdown]
# ### Claim C12: softmax and attention are the sensitive part; keeping them in 16 bits repairs accuracy
#
# It holds if softmax and the products of attention cause half of the noise, and taking them back to float removes half of it.

# %%
lesson.claim(claims.attention_is_sensitive(quantize.sensitive_part(noise), model, base.environment))

# %% [markdown]
# ## Mixed precision under a budget
#
# Keep the most sensitive layers in float, as few as the budget of one point needs. The engine builds the result for real, and only that
# counts.

# %%
mixed = quantize.greedy(models.get(model), static.replace(engine="onnx_runtime"), Budget(loss=0.01, cosine=0.99), samples=100)
lesson.table(charts.mixed(mixed))

# %% [markdown]
# ## Why is it slow, why is it wrong?
#
# The explainer looks at the built files, times the layers of this model in the engine's own kernels, tries whether products of bytes
# overflow on this processor, and compares outputs. It names a cause only where figures say so, and predicts what the cure gains.

# %%
suspects = {bench.plan_of(one): one for one in plans if one.precision == "int8"}.values()
explained = [(one, quantize.explain(quantize.gather(one, comparison))) for one in suspects]
lesson.table(charts.causes([(bench.plan_of(one), causes) for one, causes in explained]))

# %% [markdown]
# A prediction is worth what its test is worth: the first cure that a setting can apply is applied, measured, and called cured or not.

# %%
curable = [(one, cause) for one, causes in explained for cause in causes if cause.changes]
for one, cause in curable[:1]:
    print(quantize.verify(one, cause).evidence)
print(f"{len(curable)} cures can be applied by a setting.")

# %% [markdown]
# ## Training with the rounding in place
#
# Quantization-aware training rounds in the forward pass and lets the gradient through, so the weights move to where rounding hurts less. It
# needs the training data and minutes, so here a small network is trained on handwritten digits, at fewer and fewer bits.

# %%
recovered = lesson.predict("At the fewest bits tried: how many points does QAT win back?", 5.0, "points")

# %% [markdown]
# Post-training quantization (PTQ) and QAT start from the same weights and are judged on the same held-out digits.

# %%
widths = quantize.bit_widths(models.get("digits"), bits=(8, 4, 3))
lesson.table(charts.bit_widths(widths))
lesson.reveal(recovered, 100 * (widths[-1].qat.value - widths[-1].ptq.value))

# %% [markdown]
# ### Claim C13: QAT recovers what PTQ loses
#
# It holds if, at the width where PTQ loses most, QAT wins at least half of the loss back. Two bits are too few for this network: try them.

# %%
lesson.claim(claims.training_recovers(widths, base.environment, "digits"))

# %% [markdown]
# ## Try it yourself
#
# Change the scheme, the calibration size or the scales; each press of Measure runs the plan beside FP32 of its engine and adds a point.

# %%
panel.quantize(static, earlier=comparison)

# %% [markdown]
# ## What it means
#
# INT8 is worth its trouble where three things hold: the processor multiplies bytes faster than floats, most multiplications really run in
# bytes, and the loss is smaller than what you can afford *and* than what your samples can show. The order of work: BF16 first where the
# hardware has it, then dynamic or static INT8 by the kind of layers, then per-channel scales and honest calibration data, then the few
# sensitive layers back to float, and training last.
