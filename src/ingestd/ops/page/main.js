// Which section is shown, and keeping it up to date: in place, only while somebody looks.
import { ask } from "./api.js";
import { attribute, fill, h, number, text } from "./dom.js";
import { BatchView, FileView, OverviewView, QuotasView, SettingsView, batchTable, errorTable, ruleTable, runningTable } from "./views.js";
import { WindowsView } from "./windows.js";

const EVERY = 2000;
const views = {
  overview: () => new OverviewView(), windows: () => new WindowsView(), running: runningTable, batches: batchTable, errors: errorTable,
  rules: ruleTable, quotas: () => new QuotasView(), settings: () => new SettingsView(),
  batch: (id) => new BatchView(id), file: (path) => new FileView(path),
};
const parents = { batch: "batches" };
const at = (id) => document.getElementById(id);
let current = null;
let timer = 0;
let lookedAt = 0;

function show() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const known = Object.hasOwn(views, name) ? name : "overview";
  current?.close?.();
  current = views[known](decodeURIComponent(rest.join("/")));
  at("main").replaceChildren(current.element);
  for (const link of at("nav").children) attribute(link, "aria-current", link.hash === `#${parents[known] ?? known}` ? "page" : null);
  const link = at("nav").querySelector("[aria-current]");  // not scrollIntoView: that would also move where Tab starts
  if (link) at("nav").scrollLeft = link.offsetLeft - (at("nav").clientWidth - link.offsetWidth) / 2;
  document.title = `${current.element.querySelector("h1")?.textContent ?? "console"} · ingestd`;
  if (known === "file") at("path").value = current.path;
  lookedAt = 0;
  refresh();
}

async function refresh() {
  clearTimeout(timer);
  if (!document.hidden) {
    try {
      const due = Date.now() - lookedAt >= (current.every ?? 0);
      if (due) lookedAt = Date.now();
      const [overview] = await Promise.all([ask("overview"), due ? current.refresh() : null]);
      summary(overview);
      at("lost").hidden = true;
    } catch (error) {
      text(at("lost"), `No answer from the daemon (${error.message}); what is shown may be old. Trying again.`);
      at("lost").hidden = false;
      badge("lost", "bad");
    }
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, EVERY);
}

function summary(overview) {
  text(at("where"), `${overview.project} · ${overview.replica}`);
  at("where").title = `version ${overview.version}`;
  badge(overview.ready ? "ready" : "not ready", overview.ready ? "ok" : "warn");
  const { running, windows, rules, troubles } = overview;
  text(at("n-windows"), windows.open ? number(windows.open) : "");
  const busy = running.active + running.awaiting + running.blocked;
  text(at("n-running"), busy ? number(busy) : "");
  const wrong = Object.values(troubles).reduce((all, value) => all + value, 0);
  text(at("n-errors"), wrong ? number(wrong) : "");
  at("n-errors").classList.toggle("bad", wrong > 0);
  text(at("n-rules"), number(rules.count));
  at("n-rules").classList.toggle("bad", rules.problems > 0);
}

function badge(words, state) {
  text(at("state"), words);
  attribute(at("state"), "class", `badge ${state}`);
}

function theme(chosen) {
  if (chosen) document.documentElement.dataset.theme = chosen;
  const dark = (chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  attribute(at("theme"), "aria-pressed", dark);
  return dark;
}

at("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const path = at("path").value.trim();
  if (!path) return;
  const hash = `#file/${encodeURIComponent(path)}`;
  if (location.hash === hash) show();
  else location.hash = hash;
});
at("theme").addEventListener("click", () => {
  const chosen = theme(document.documentElement.dataset.theme) ? "light" : "dark";
  theme(chosen);
  try { localStorage.setItem("ingestd-theme", chosen); } catch { /* a browser may keep nothing */ }
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/input|select|textarea/i.test(event.target.tagName)) {
    event.preventDefault();
    at("path").focus();
  }
});
addEventListener("hashchange", () => { show(); at("main").focus({ preventScroll: true }); });
let stored = null;
try { stored = localStorage.getItem("ingestd-theme"); } catch { /* the same */ }
theme(["light", "dark"].includes(stored) ? stored : undefined);
fill(at("main"), h("p", { class: "muted" }, "looking…"));
show();
