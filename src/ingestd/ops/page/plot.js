// Line plots in SVG: one or two series over time, with a reading under the pointer or the arrow keys.
import { h, patch, text } from "./dom.js";

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [180, 60, 8, 8, 20];
const [MINUTE, HOUR] = [60, 3600];
const SECONDS = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR];

export class Plot {
  constructor({ title, keys, format, bridge = false, steps = null }) {
    this.format = format;
    this.steps = steps;
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
    const step = ruler(Math.max(0, ...series.flat().filter((value) => value !== null)), this.steps);
    const top = step.size * step.count;
    const x = (index) => LEFT + (times.length < 2 ? 1 : (times[index] - times[0]) / (times.at(-1) - times[0])) * (this.width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    for (let line = 0; line <= step.count; line += 1) {
      // Multiples are rounded to what they mean: 3 * 0.1 is no 0.30000000000000004 on an axis.
      const value = Number((step.size * line).toPrecision(6));
      wanted.append(h("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y(value), y2: y(value) }),
        h("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, this.format(value)));
    }
    if (times.length > 1) for (const moment of moments(times[0], times.at(-1), this.width < 500 ? 4 : 7)) {
      const share = (moment.at - times[0]) / (times.at(-1) - times[0]);
      const half = moment.words.length * 3.2;
      const place = Math.min(this.width - RIGHT - half, Math.max(LEFT + half, LEFT + share * (this.width - LEFT - RIGHT)));
      wanted.append(h("text", { class: "moment", x: place.toFixed(1), y: HEIGHT - 5, "text-anchor": "middle" }, moment.words));
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

// Lines at multiples of a size that people count in, at most six: every label is the exact value of its line.
function ruler(most, steps) {
  if (most <= 0) return { size: 1, count: 1 };
  const known = steps?.find((size) => most >= size && size * 6 >= most);
  const unit = 10 ** Math.floor(Math.log10(most / 6));
  const size = known ?? [1, 2, 5, 10].map((one) => one * unit).find((one) => one * 6 >= most);
  return { size, count: Math.max(1, Math.ceil(Number((most / size).toPrecision(6)))) };
}

// Full hours, minutes or seconds between two moments, in the reader's own time.
function moments(first, last, most) {
  const shift = -new Date(first * 1000).getTimezoneOffset() * MINUTE;
  const size = SECONDS.find((one) => (last - first) / one <= most) ?? 24 * HOUR;
  const options = { hour12: false, hour: "2-digit", minute: "2-digit", ...(size < MINUTE ? { second: "2-digit" } : {}) };
  const found = [];
  for (let at = Math.ceil((first + shift) / size) * size - shift; at <= last; at += size)
    found.push({ at, words: new Date(at * 1000).toLocaleTimeString([], options) });
  return found;
}

export const TIMES = SECONDS;

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
