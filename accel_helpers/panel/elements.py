"""Two elements that ipywidgets lacks in an accessible form: a number box with its slider, and a status line that stays in the page.

ipywidgets' slider handle has no accessible name, and its HTML widget replaces the live region whose changes a screen reader should speak.
"""

from __future__ import annotations

import anywidget
import traitlets


class Batch(anywidget.AnyWidget):  # type: ignore[misc]
    """A batch size from 1 to ``largest``: typed into a box or moved with a slider; ``value`` changes when the reader lets go."""

    value = traitlets.Int(1).tag(sync=True)
    largest = traitlets.Int(64).tag(sync=True)

    _esm = """
    export default { render({ model, el }) {
      const element = (tag, values) => Object.assign(document.createElement(tag), values);
      const limits = { min: 1, max: model.get("largest"), step: 1 };
      const box = element("input", { type: "number", ...limits });
      const slider = element("input", { type: "range", ...limits, ariaLabel: "Batch slider" });
      const label = element("label", { textContent: "Batch" });
      label.append(box);
      el.classList.add("accel-batch");
      el.addEventListener("keydown", (event) => event.stopPropagation());  // the notebook would take arrows and Enter for itself
      el.append(label, slider);
      const show = () => { box.value = slider.value = model.get("value"); };
      const commit = (input) => {
        if (!input.value || !input.reportValidity()) return show();
        model.set("value", Number(input.value));
        model.save_changes();
      };
      slider.addEventListener("input", () => { box.value = slider.value; });
      for (const input of [box, slider]) input.addEventListener("change", () => commit(input));
      model.on("change:value", show);
      show();
    } };
    """
    _css = """
    .accel-batch, .accel-batch label { display: flex; align-items: center; gap: 8px; }
    .accel-batch { font-size: var(--jp-widgets-font-size, 13px); color: var(--jp-widgets-label-color, inherit); }
    .accel-batch input[type=number] { width: 5em; height: 28px; box-sizing: border-box; padding: 0 4px; font: inherit;
      color: var(--jp-ui-font-color1, inherit); background: var(--jp-layout-color1, inherit);
      border: 1px solid var(--jp-widgets-input-border-color, #9e9e9e); }
    .accel-batch input[type=range] { width: 12em; }
    """


class Status(anywidget.AnyWidget):  # type: ignore[misc]
    """What is going on, spoken when it changes, and a progress bar while something runs. Rounds move the bar and are not spoken."""

    text = traitlets.Unicode().tag(sync=True)
    running = traitlets.Bool(False).tag(sync=True)
    done = traitlets.Int(0).tag(sync=True)
    total = traitlets.Int(0).tag(sync=True)

    _esm = """
    export default { render({ model, el }) {
      const text = document.createElement("span");
      text.setAttribute("role", "status");
      text.setAttribute("aria-live", "polite");
      const bar = document.createElement("progress");
      bar.setAttribute("aria-label", "Progress of the measurement");
      const rounds = document.createElement("span");
      el.classList.add("accel-status");
      el.append(text, bar, rounds);
      const show = () => {
        if (text.textContent !== model.get("text")) text.textContent = model.get("text");
        const [done, total] = [model.get("done"), model.get("total")];
        bar.hidden = !model.get("running");
        if (total) { bar.max = total; bar.value = done; } else bar.removeAttribute("value");
        rounds.textContent = model.get("running") && total ? `round ${done} of ${total}` : "";
      };
      model.on("change", show);
      show();
    } };
    """
    _css = """
    .accel-status { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 12px; min-height: 32px; line-height: 1.4;
      font-size: var(--jp-widgets-font-size, 13px); color: var(--jp-ui-font-color1, inherit); }
    .accel-status progress { width: 12em; }
    """
