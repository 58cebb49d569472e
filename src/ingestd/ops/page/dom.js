// Elements, patching and formatting. Text from the daemon only ever becomes text nodes: object names are untrusted.

export function h(tag, attributes = {}, ...children) {
  const element = tag === "svg" || svgTags.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}
const svgTags = new Set(["path", "line", "text", "circle", "g", "rect"]);

export function text(element, value) {
  const wanted = value === null || value === undefined ? "" : String(value);
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function attribute(element, name, value) {
  const wanted = value === null || value === undefined || value === false ? null : String(value);
  if (element.getAttribute(name) === wanted) return;
  if (wanted === null) element.removeAttribute(name);
  else element.setAttribute(name, wanted);
}

// Make `target` look like `wanted` with as few changes as possible, so that focus, selection and scroll stay put.
export function patch(target, wanted) {
  if (target.nodeType !== wanted.nodeType || target.nodeName !== wanted.nodeName) {
    target.replaceWith(wanted);
    return wanted;
  }
  if (target.nodeType === Node.TEXT_NODE) {
    if (target.data !== wanted.data) target.data = wanted.data;
    return target;
  }
  for (const { name, value } of [...wanted.attributes]) if (target.getAttribute(name) !== value) target.setAttribute(name, value);
  for (const { name } of [...target.attributes]) if (!wanted.hasAttribute(name) && name !== "style") target.removeAttribute(name);
  if (wanted.style && wanted.style.cssText !== target.style.cssText) target.style.cssText = wanted.style.cssText;
  const keep = [...target.childNodes];
  const next = [...wanted.childNodes];
  next.forEach((child, index) => (keep[index] ? patch(keep[index], child) : target.append(child)));
  keep.slice(next.length).forEach((child) => child.remove());
  return target;
}

export function fill(target, ...children) {
  const wanted = target.cloneNode(false);
  wanted.append(...children.flat(Infinity).filter(Boolean));
  patch(target, wanted);
}

const whole = new Intl.NumberFormat("en-US");
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "" : whole.format(value));
export const short = (value) => (Math.abs(value) < 1000 ? whole.format(Math.round(value * 10) / 10) : compact.format(value));
// For axes and readings: small numbers keep the digits that tell them apart.
export const exact = (value) => (value && Math.abs(value) < 1 ? String(Number(value.toPrecision(2))) : short(value));

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) [value, at] = [value / 1024, at + 1];
  return `${at && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const sign = seconds < 0 ? "−" : "";
  const all = Math.abs(seconds);
  if (!all) return "0 s";
  if (all < 1) return `${sign}${all.toFixed(all < 0.1 ? 2 : 1)} s`;
  if (all < 60) return `${sign}${all < 10 && !Number.isInteger(all) ? all.toFixed(1) : Math.round(all)} s`;
  const [days, hours, minutes] = [Math.floor(all / 86400), Math.floor(all / 3600) % 24, Math.floor(all / 60) % 60];
  const parts = days ? [[days, "d"], [hours, "h"]] : hours ? [[hours, "h"], [minutes, "m"]] : [[minutes, "m"], [Math.floor(all) % 60, "s"]];
  return sign + parts.filter(([count]) => count).map(([count, unit]) => `${count} ${unit}`).join(" ");
}

export const seconds = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;
export const clock = (moment) => new Date(moment).toLocaleTimeString([], { hour12: false });

export function when(moment) {
  if (!moment) return "";
  const date = new Date(moment);
  return date.toDateString() === new Date().toDateString() ? clock(date) : `${date.toLocaleDateString()} ${clock(date)}`;
}

export const badge = (state, words = state) => h("span", { class: `badge ${looks[state] ?? ""}` }, words.replace("_", " "));
const looks = {
  done: "ok", ok: "ok", loaded: "ok", failed: "bad", failing: "bad", bad: "bad", blocked: "warn", warn: "warn",
  quarantined: "warn", refused: "bad", dead_letter: "warn", missing: "warn", working: "now", now: "now",
  corrupted: "bad", invalid_schema: "bad", "awaiting job": "now", accepted: "now",
};
