"""Two elements that ipywidgets lacks in an accessible form: a number box with its slider, and a status line that stays in the page.

ipywidgets' slider handle has no accessible name, and its HTML widget replaces the live region whose changes a screen reader should speak.
"""

from __future__ import annotations

import anywidget
import traitlets

from accel_helpers.bench import Progress


class NumberBox(anywidget.AnyWidget):  # type: ignore[misc]
    """A whole number from ``smallest`` to ``largest``: typed into a box or moved with a slider; ``value`` changes when the reader lets go.

    The slider goes through every number, or from one of the ``stops`` to the next.
    """

    value = traitlets.Int(1).tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)
    smallest = traitlets.Int(1).tag(sync=True)
    largest = traitlets.Int(64).tag(sync=True)
    stops = traitlets.List(traitlets.Int()).tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)

    _esm = """
    export default { render({ model, el }) {
      const element = (tag, values) => Object.assign(document.createElement(tag), values);
      const stops = model.get("stops");
      const limits = { min: model.get("smallest"), max: model.get("largest"), step: 1 };
      const places = stops.length ? { min: 0, max: stops.length - 1, step: 1 } : limits;
      const numberAt = (place) => stops.length ? stops[Number(place)] : Number(place);
      const placeOf = (number) => stops.length ? stops.filter((stop) => stop <= number).length - 1 : number;
      const box = element("input", { type: "number", ...limits });
      const slider = element("input", { type: "range", ...places, ariaLabel: `${model.get("label")} slider` });
      const label = element("label", { textContent: model.get("label") });
      label.append(box);
      el.classList.add("accel-number");
      el.addEventListener("keydown", (event) => event.stopPropagation());  // the notebook would take arrows and Enter for itself
      el.append(label, slider);
      const show = () => {
        box.value = model.get("value");
        slider.value = placeOf(model.get("value"));
        slider.ariaValueText = box.value;
        box.disabled = slider.disabled = model.get("disabled");
      };
      const commit = (number) => {
        model.set("value", number);
        model.save_changes();
      };
      slider.addEventListener("input", () => { box.value = slider.ariaValueText = numberAt(slider.value); });
      slider.addEventListener("change", () => commit(numberAt(slider.value)));
      box.addEventListener("change", () => { if (box.value && box.reportValidity()) commit(Number(box.value)); else show(); });
      model.on("change", show);
      show();
    } };
    """
    _css = """
    .accel-number, .accel-number label { display: flex; align-items: center; gap: 8px; }
    .accel-number { font-size: var(--jp-widgets-font-size, 13px); color: var(--jp-widgets-label-color, inherit); }
    .accel-number input[type=number] { width: 5em; height: 28px; box-sizing: border-box; padding: 0 4px; font: inherit;
      color: var(--jp-ui-font-color1, inherit); background: var(--jp-layout-color1, inherit);
      border: 1px solid var(--jp-widgets-input-border-color, #9e9e9e); }
    .accel-number input[type=range] { width: 12em; }
    .accel-number input:disabled { opacity: 0.6; }
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

    def say(self, message: str, progress: Progress | None, *, running: bool) -> None:
        """What is going on; the bar moves with the rounds."""
        with self.hold_sync():
            self.text, self.running = message, running
            self.done, self.total = (progress.done, progress.total) if progress and progress.rounds else (0, 0)
