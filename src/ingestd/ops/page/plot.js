// Line plots in SVG: one or two series over time, with a reading under the pointer or the arrow keys.
import { h, patch, text } from "./dom.js";

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [180, 46, 8, 8, 20];

export class Plot {
  constructor({ title, keys, format, bridge = false }) {
    this.format = format;
    this.bridge = bridge;
    this.keys = keys;
    this.svg = h("svg", { class: "plot", role: "img", tabindex: "0" });
    this.reading = h("span", { class: "reading", "aria-live": "polite" });
    this.element = h("section", { class: "card", "aria-label": title },
      h("div", { class: "head" }, h("h2", {}, title),
        keys.length > 1 ? keys.map((key, index) => h("span", { class: index ? "key two" : "key" }, key)) : null,
        h("span", { class: "fill" }), this.reading),
      this.svg);
    this.title = title;
    this.at = null;
    this.svg.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.mark(null));
    this.svg.addEventListener("blur", () => this.mark(null));
    this.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || !this.times?.length) return;
      event.preventDefault();
      this.mark(Math.min(this.times.length - 1, Math.max(0, (this.at ?? this.times.length) + step)));
    });
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  show(times, series) {
    this.samples = [times, series];
    this.draw();
  }

  // As many points as can be told apart: neighbours are averaged, and times without a value count for nothing.
  thin() {
    const [times, series] = this.samples ?? [[], []];
    const size = Math.max(1, Math.ceil(times.length / Math.max(40, this.width / 5)));
    const groups = Array.from({ length: Math.ceil(times.length / size) }, (_, at) => [at * size, Math.min(times.length, (at + 1) * size)]);
    const mean = (values) => (values.length ? values.reduce((all, value) => all + value, 0) / values.length : null);
    this.times = groups.map(([first, last]) => times[last - 1] ?? times[first]);
    this.series = series.map((values) => groups.map(([first, last]) => mean(values.slice(first, last).filter((value) => value !== null))));
  }

  point(x) {
    if (!this.times?.length) return;
    const share = (x - LEFT) / Math.max(1, this.width - LEFT - RIGHT);
    const moment = this.times[0] + share * (this.times.at(-1) - this.times[0]);
    let best = 0;
    this.times.forEach((at, index) => { if (Math.abs(at - moment) < Math.abs(this.times[best] - moment)) best = index; });
    this.mark(best);
  }

  mark(index) {
    this.at = index;
    this.draw();
  }

  draw() {
    this.width = this.svg.clientWidth || 600;
    this.thin();
    const { times, series } = this;
    const wanted = this.svg.cloneNode(false);
    wanted.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    const top = nice(Math.max(0, ...series.flat().filter((value) => value !== null)));
    const x = (index) => LEFT + (times.length < 2 ? 1 : (times[index] - times[0]) / (times.at(-1) - times[0])) * (this.width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    for (let line = 0; line <= 4; line += 1) {
      const value = (top * line) / 4;
      wanted.append(h("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y(value), y2: y(value) }),
        h("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, this.format(value)));
    }
    if (times.length > 1) for (const share of this.width < 500 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
      const label = new Date((times[0] + share * (times.at(-1) - times[0])) * 1000);
      const words = label.toLocaleTimeString([], { hour12: false, hour: "2-digit", minute: "2-digit", ...(times.at(-1) - times[0] < 900 ? { second: "2-digit" } : {}) });
      wanted.append(h("text", { x: LEFT + share * (this.width - LEFT - RIGHT), y: HEIGHT - 5, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle" }, words));
    }
    series.forEach((values, which) => {
      const name = which ? "two" : "one";
      for (const run of runs(values, this.bridge)) {
        const line = run.map((index, place) => `${place ? "L" : "M"}${x(index).toFixed(1)},${y(values[index]).toFixed(1)}`).join("");
        if (!which && run.length > 1) wanted.append(h("path", { class: "fill-one", d: `${line}L${x(run.at(-1)).toFixed(1)},${y(0)}L${x(run[0]).toFixed(1)},${y(0)}Z` }));
        if (run.length > 1) wanted.append(h("path", { class: name, d: line }));
        else wanted.append(h("circle", { class: `dot-${name}`, cx: x(run[0]), cy: y(values[run[0]]), r: 2.2 }));
      }
    });
    if (this.at !== null && this.at < times.length) {
      wanted.append(h("line", { class: "cross", x1: x(this.at), x2: x(this.at), y1: TOP, y2: HEIGHT - BOTTOM }));
      series.forEach((values, which) => values[this.at] !== null && wanted.append(h("circle", { class: which ? "dot-two" : "dot-one", cx: x(this.at), cy: y(values[this.at]), r: 3.5 })));
    }
    wanted.setAttribute("aria-label", this.words());
    patch(this.svg, wanted);
    text(this.reading, this.at === null || this.at >= times.length ? "" : this.read(this.at));
  }

  read(index) {
    const values = this.keys.map((key, which) => `${key} ${this.series[which][index] === null ? "none" : this.format(this.series[which][index])}`);
    return `${new Date(this.times[index] * 1000).toLocaleTimeString([], { hour12: false })}  ${values.join(", ")}`;
  }

  words() {
    if (!this.times?.length) return `${this.title}: no samples yet`;
    return `${this.title}: ${this.read(this.times.length - 1)}. Arrow keys read earlier samples.`;
  }
}

function nice(value) {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * unit).find((step) => step >= value);
}

// Indexes to draw as one line: neighbours that have a value, or with `bridge` all that have one.
function runs(values, bridge) {
  const found = [];
  let before = null;
  values.forEach((value, index) => {
    if (value === null) return;
    if (before !== null && (bridge || before === index - 1)) found.at(-1).push(index);
    else found.push([index]);
    before = index;
  });
  return found;
}
