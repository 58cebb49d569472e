// The sections of the page. Each view has an `element`, `refresh()` and perhaps `close()`.
import { ask } from "./api.js";
import { badge, bytes, duration, exact, fill, h, number, seconds, short, text, when } from "./dom.js";
import { Plot, TIMES } from "./plot.js";
import { PagedTable } from "./table.js";

const batchLink = (id) => h("a", { href: `#batch/${encodeURIComponent(id)}`, class: "mono" }, id);
const fileLink = (url) => h("a", { href: `#file/${encodeURIComponent(url)}`, class: "mono" }, url);
const isFile = (name) => /^gs:\/\/[^/]+\/./.test(name) && !/ and [\d,]+ more$/.test(name);
const RANGES = [[15, "15 min"], [60, "1 h"], [1440, "24 h"]];

export class OverviewView {
  constructor() {
    this.minutes = 60;
    this.tiles = h("div", { class: "tiles" });
    this.files = new Plot({ title: "Files per second", keys: ["files/s"], format: exact });
    this.rows = new Plot({ title: "Rows per second", keys: ["rows/s"], format: exact });
    this.freshness = new Plot({ title: "Freshness", keys: ["typical", "slowest"], format: duration, bridge: true, steps: TIMES });
    this.ranges = h("div", { class: "segmented", role: "group", "aria-label": "Time range" }, RANGES.map(([minutes, label]) =>
      h("button", { type: "button", "aria-pressed": minutes === this.minutes, onclick: (event) => this.range(minutes, event.target) }, label)));
    this.running = runningTable({ title: "Running batches", page: 8, heading: "h2" });
    this.errors = errorTable({ title: "Latest trouble", page: 8, heading: "h2" });
    this.element = h("div", {}, this.tiles,
      h("div", { class: "head" }, h("h1", { class: "unseen" }, "Overview"), h("span", { class: "muted" }, "What this replica got done; freshness is the time from upload to table"), h("span", { class: "fill" }), this.ranges),
      h("div", { class: "plots" }, this.files.element, this.rows.element, this.freshness.element), this.running.element, this.errors.element);
    for (const table of [this.running, this.errors]) for (const extra of [table.filter, table.select]) extra?.remove();
  }

  range(minutes, button) {
    this.minutes = minutes;
    for (const one of this.ranges.children) one.setAttribute("aria-pressed", one === button);
    this.refresh();
  }

  async refresh() {
    const [overview, series] = await Promise.all([ask("overview"), ask("series", { minutes: this.minutes }), this.running.refresh(), this.errors.refresh()]);
    const per = (values) => values.map((value) => value / series.seconds);
    this.files.show(series.at, [per(series.files)]);
    this.rows.show(series.at, [per(series.rows)]);
    this.freshness.show(series.at, [series.typical, series.slowest]);
    fill(this.tiles, tiles(overview, series));
  }
}

function tiles(overview, series) {
  const last = Math.max(1, Math.round(60 / series.seconds));
  const sum = (values) => values.slice(-last).reduce((all, value) => all + value, 0);
  const fresh = series.typical.filter((value) => value !== null).at(-1);
  const slow = series.slowest.filter((value) => value !== null).at(-1);
  const troubles = series.troubles.reduce((all, value) => all + value, 0);
  const { windows, running, totals } = overview;
  const done = (totals.files.done ?? 0) + (totals.files.loaded ?? 0);
  const due = windows.next_due && (Date.parse(windows.next_due) - Date.parse(overview.now)) / 1000;
  const tile = (label, value, note, style = "") => h("div", { class: "tile" }, h("div", { class: "label" }, label), h("div", { class: `value ${style}` }, value), h("div", { class: "note" }, note));
  return [
    tile("Files, last minute", number(sum(series.files)), `${number(done)} loaded since start`),
    tile("Rows, last minute", short(sum(series.rows)), `${short(totals.rows)} rows, ${bytes(totals.size)} in all`),
    tile("Freshness", fresh === undefined ? "—" : duration(fresh), slow === undefined ? "nothing loaded lately" : `slowest ${duration(slow)}`),
    tile("Open windows", number(windows.open), windows.open ? `${number(windows.files)} files; next ${due > 0 ? `in ${duration(Math.ceil(due))}` : "now"}` : "none"),
    tile("Running batches", number(running.active + running.awaiting), running.blocked ? `${number(running.blocked)} blocked` : "none blocked", ""),
    tile("Trouble", number(troubles), `in the last ${shownRange(series)}`, troubles ? "bad" : ""),
  ];
}

function shownRange(series) {
  return duration(Math.max(60, series.at.length * series.seconds)).replace(/ 0 [ms]$/, "");
}

// What Spark does for these batches; nothing on a daemon that has no Spark.
function sparkNote(found, table) {
  const spark = found.spark;
  if (!spark?.state) return fill(table.above);
  const { tasks = 0, tasks_done: done = 0, calls = [] } = spark;
  const inner = h("span");
  inner.style.width = `${tasks ? Math.round((100 * done) / tasks) : 0}%`;
  const busy = spark.stages ? `, ${number(spark.jobs)} jobs in ${number(spark.stages)} stages: ${number(done)} of ${number(tasks)} tasks` : calls.length ? "" : ", idle";
  return fill(table.above, h("div", { class: "spark" }, h("p", { class: "hint" }, h("strong", {}, "Spark "), badge(spark.state === "ready" ? "ok" : "now", String(spark.state)), ` ${spark.application ?? ""}${busy}`),
    tasks ? h("div", { class: "bar", role: "progressbar", "aria-label": "Spark tasks done", "aria-valuemin": 0, "aria-valuenow": done, "aria-valuemax": tasks }, inner) : null,
    spark.problem ? h("p", { class: "warn-text" }, spark.problem) : null,
    calls.length ? h("ul", { class: "plain" }, calls.slice(0, 20).map((call) => h("li", {}, h("code", {}, call.tag), ` for ${duration(call.seconds)}`))) : null));
}

export function runningTable(more = {}) {
  return new PagedTable({
    title: "Running batches", path: "running", placeholder: "Filter by table, rule or batch", empty: "Nothing is being loaded right now.",
    hint: more.page ? "" : "Batches this replica works on, whose job runs, or that wait for their surroundings.",
    extra: sparkNote,
    columns: [
      { label: "State", cell: (one) => badge(one.state) },
      { label: "Batch", cell: (one) => batchLink(one.event_id) },
      { label: "Destination", class: "long", cell: (one) => one.dest },
      { label: "Rule", cell: (one) => one.rule },
      { label: "Files", class: "num", cell: (one) => `${number(one.loaded)} / ${number(one.files)}` },
      { label: "Attempt", class: "num", cell: (one) => number(one.attempt) },
      { label: "For", class: "num", cell: (one, now) => duration(seconds(one.created, now)) },
      { label: "Job or reason", class: "long", cell: (one) => (one.error ? h("span", { class: "warn-text" }, one.error, one.retry_at ? ` Next try ${when(one.retry_at)}.` : "") : h("code", {}, one.job)) },
    ],
    ...more,
  });
}

export function errorTable(more = {}) {
  return new PagedTable({
    title: "Errors and quarantine", path: "errors", placeholder: "Filter by file, reason, rule or batch", empty: "No trouble since this replica started.",
    hint: more.page ? "" : "What went wrong on this replica lately, and why. Blocked batches go on by themselves once the cause is gone.",
    choices: [["", "Everything"], ["failed", "Failed"], ["blocked", "Blocked"], ["quarantined", "Quarantined"], ["refused", "Refused"], ["dead_letter", "Dead letters"]],
    extra: (found, table) => {
      for (const option of table.select?.options ?? []) if (option.value) text(option, `${LABELS[option.value]} (${number(found.counts[option.value] ?? 0)})`);
    },
    columns: [
      { label: "What", cell: (one) => badge(one.kind) },
      { label: "When", class: "num", cell: (one) => when(one.at) },
      { label: "Subject", class: "long", cell: (one) => (isFile(one.subject) ? fileLink(one.subject) : one.subject) },
      { label: "Reason", class: "long", cell: (one) => h("span", {}, one.reason, one.retry_at ? h("span", { class: "muted" }, ` Next try ${when(one.retry_at)}.`) : "") },
      { label: "Rule", cell: (one) => one.rule },
      { label: "Batch", cell: (one) => (one.event_id ? batchLink(one.event_id) : "") },
    ],
    ...more,
  });
}
const LABELS = { failed: "Failed", blocked: "Blocked", quarantined: "Quarantined", refused: "Refused", dead_letter: "Dead letters" };

export function batchTable() {
  return new PagedTable({
    title: "Recent batches", path: "batches", placeholder: "Filter by table, rule, file, error or batch", empty: "No batch has ended since this replica started.",
    choices: [["", "Every end"], ["done", "Done"], ["failed", "Failed"], ["missing", "Missing"], ["superseded", "Superseded"], ["ignored", "Ignored"]],
    columns: [
      { label: "End", cell: (one) => badge(one.phase) },
      { label: "When", class: "num", cell: (one) => when(one.ended) },
      { label: "Batch", cell: (one) => batchLink(one.event_id) },
      { label: "Destination", class: "long", cell: (one) => one.dest },
      { label: "Rule", cell: (one) => one.rule },
      { label: "Files", class: "num", cell: (one) => number(one.files) },
      { label: "Rows", class: "num", cell: (one) => number(one.rows) },
      { label: "Size", class: "num", cell: (one) => bytes(one.size) },
      { label: "Took", class: "num", cell: (one) => duration(seconds(one.created, one.ended)) },
      { label: "First file", class: "long", cell: (one) => [isFile(one.source) ? fileLink(one.source) : one.source, one.error && h("div", { class: "error-text" }, one.error)] },
    ],
  });
}

export function ruleTable() {
  const condition = (when) => [when.prefix && `${when.prefix}…`, when.suffix && `…${when.suffix}`, when.filter, when.exclusion && `not ${when.exclusion}`].filter(Boolean).join("  ");
  return new PagedTable({
    title: "Rules", path: "rules", placeholder: "Filter by name or table", empty: "No rules are in force.",
    hint: "Counters are of this replica, since it started.",
    extra: (found, table) => {
      text(table.back, "Previous");
      text(table.on, "Next");
      fill(table.above, found.problems.length ? [h("p", { class: "error-text" }, "Files that cannot be read keep their last good version:"), h("ul", { class: "plain error-text" }, found.problems.map((problem) => h("li", {}, problem)))] : []);
    },
    columns: [
      { label: "Rule", class: "long", cell: (one) => [h("strong", {}, one.name), one.disabled ? [" ", badge("warn", "disabled")] : "", h("div", { class: "muted mono" }, condition(one.when) || "every file")] },
      { label: "Destination", class: "long", cell: (one) => [one.dest, h("div", { class: "muted" }, [one.window_seconds ? `window ${duration(one.window_seconds)}` : "file by file", one.async ? "asynchronous" : "", ...one.on_success].filter(Boolean).join(", "))] },
      { label: "Files", class: "num", cell: (one) => number(Object.values(one.totals.files).reduce((all, value) => all + value, 0)) },
      { label: "Rows", class: "num", cell: (one) => number(one.totals.rows) },
      { label: "Size", class: "num", cell: (one) => bytes(one.totals.size) },
      { label: "Not loaded", class: "num", cell: (one) => number(Object.entries(one.totals.files).reduce((all, [fate, value]) => (["done", "loaded", "read_earlier"].includes(fate) ? all : all + value), 0)) },
      { label: "Newest file", class: "num", cell: (one, now) => (one.totals.newest ? `${duration(seconds(one.totals.newest, now))} old` : "—") },
      { label: "To look at", class: "long", cell: (one) => [one.warnings.length ? h("ul", { class: "plain warn-text" }, one.warnings.map((warning) => h("li", {}, `${warning.path ? `${warning.path}: ` : ""}${warning.message}`))) : h("span", { class: "muted" }, "nothing"), one.totals.last_error && h("div", { class: "error-text" }, `last error: ${one.totals.last_error}`)] },
    ],
  });
}

export class QuotasView {
  constructor() {
    this.body = h("div");
    this.element = h("section", { class: "card", "aria-label": "Quotas" }, h("div", { class: "head" }, h("h1", {}, "Quotas")),
      h("p", { class: "hint" }, "BigQuery's limits as this replica counts them: loads of the day, the busiest tables first."), this.body);
  }

  async refresh() {
    const { quotas, paces } = await ask("quotas");
    const meter = (used, limit) => {
      const inner = h("span");
      inner.style.width = `${Math.min(100, (100 * used) / Math.max(1, limit))}%`;
      return h("div", { class: used > 0.8 * limit ? "bar high" : "bar", role: "meter", "aria-valuenow": used, "aria-valuemin": 0, "aria-valuemax": limit, "aria-label": "loads used" }, inner);
    };
    const row = (name, used, limit, notes) => h("tr", {}, h("td", { class: "long", "data-label": "Table" }, name), h("td", { "data-label": "Used" }, meter(used, limit)),
      h("td", { class: "num", "data-label": "Loads" }, `${number(used)} / ${number(limit)}`), h("td", { class: "long", "data-label": "Now" }, notes));
    const notes = (table) => [table.waiting && `${table.waiting} waiting`, table.closed_for_seconds && `closed for ${duration(table.closed_for_seconds)}`, table.stretch > 1 && `windows × ${table.stretch}`, paces[table.table] && `one load per ${duration(paces[table.table])}`].filter(Boolean).join(", ");
    fill(this.body, quotas.enabled ? "" : h("p", {}, badge("warn", "not paced"), " Quotas are not enforced here (quotas.enabled)."),
      h("table", { class: "cards" }, h("thead", {}, h("tr", {}, ["Table", "Used", "Loads", "Now"].map((label, at) => h("th", { scope: "col", class: at === 2 ? "num" : "" }, label)))),
        h("tbody", {}, row("the whole project", quotas.project_used, quotas.project_limit, quotas.waiting ? `${quotas.waiting} waiting` : ""),
          quotas.tables.map((table) => row(table.table, table.used_today, table.limit, notes(table))))));
  }
}

export class SettingsView {
  constructor() {
    this.body = h("div");
    this.element = h("section", { class: "card", "aria-label": "Settings" }, h("div", { class: "head" }, h("h1", {}, "Settings in force")), h("p", { class: "hint" }, "Secrets are not shown. docs/settings.md says what each means."), this.body);
  }

  async refresh() {
    const { settings } = await ask("settings");
    const section = (name, values) => [h("dt", {}, name), h("dd", {}, values === null || typeof values !== "object" ? h("code", {}, String(values)) : Array.isArray(values) ? h("code", {}, JSON.stringify(values))
      : h("dl", { class: "facts" }, Object.entries(values).map(([key, value]) => [h("dt", {}, key), h("dd", {}, h("code", {}, value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value)))])))];
    fill(this.body, h("dl", { class: "facts" }, Object.entries(settings).map(([key, value]) => section(key, value))));
  }
}

const steps = (list) => h("ol", { class: "steps" }, list.map((step) => h("li", { class: step.state }, h("span", { class: "what" }, step.what), step.at && h("span", { class: "at" }, when(step.at)), h("div", { class: "text" }, step.text), step.link && h("div", { class: "muted mono text" }, step.link))));

export class BatchView {
  constructor(id) {
    this.id = id;
    this.body = h("div", {}, h("p", { class: "muted" }, "looking…"));
    this.element = h("section", { class: "card", "aria-label": "Batch" }, h("div", { class: "head" }, h("h1", {}, `Batch ${id}`)), this.body);
  }

  async refresh() {
    try {
      const found = await ask(`batches/${encodeURIComponent(this.id)}`);
      fill(this.body, h("dl", { class: "facts" }, [["State", badge(found.phase)], ["Destination", found.dest], ["Rule", found.rule], ["Rows", number(found.rows)]].map(([key, value]) => [h("dt", {}, key), h("dd", {}, value ?? "")])),
        steps(found.steps), h("h2", {}, `Files (${number(found.file_count)})`),
        h("div", { class: "scroll" }, h("table", { class: "cards" }, h("thead", {}, h("tr", {}, ["Fate", "File", "Size", "Uploaded", "Why"].map((label) => h("th", { scope: "col" }, label)))),
          h("tbody", {}, found.files.map((file) => h("tr", {}, h("td", { "data-label": "Fate" }, badge(file.fate)), h("td", { class: "long", "data-label": "File" }, fileLink(file.url)), h("td", { class: "num", "data-label": "Size" }, bytes(file.size)), h("td", { class: "num", "data-label": "Uploaded" }, when(file.time)), h("td", { class: "long", "data-label": "Why" }, file.why)))))),
        found.file_count > found.files.length ? h("p", { class: "muted" }, `The first ${number(found.files.length)}; the record has them all.`) : null);
    } catch (error) {
      fill(this.body, h("p", { class: "error-text" }, error.message));
    }
  }
}

export class FileView {
  constructor(path) {
    this.path = path;
    this.full = false;
    this.body = h("div", { role: "status" }, h("p", { class: "muted" }, "looking…"));
    this.element = h("section", { class: "card", "aria-label": "Where is my file?" }, h("div", { class: "head" }, h("h1", {}, "Where is my file?")), h("p", { class: "mono" }, path), this.body);
    this.every = 10000;
  }

  async refresh() {
    try {
      fill(this.body, this.tell(await ask("explain", { path: this.path, full: this.full ? 1 : "" })));
    } catch (error) {
      fill(this.body, h("p", { class: "error-text" }, error.message));
    }
  }

  tell(found) {
    const facts = [];
    if (found.complete) facts.push(["Object", found.found ? `generation ${found.found.generation}, ${bytes(found.found.size)}, ${when(found.found.created)}` : "does not exist (any more)"], ["Rule", found.verdict]);
    return [
      facts.length ? h("dl", { class: "facts" }, facts.map(([key, value]) => [h("dt", {}, key), h("dd", {}, value)])) : null,
      found.plan.length ? [h("h2", {}, "What the rules say"), h("ul", { class: "plain" }, found.plan.map((line) => h("li", {}, line)))] : null,
      found.history.length ? found.history.map((one) => [h("h2", { class: "generation" }, `Generation ${one.generation} `, badge(["loaded", "pending", "", undefined].includes(one.fate) ? one.phase : one.fate)), one.rows === null ? null : h("p", { class: "muted" }, `${number(one.rows)} rows in its batch `, batchLink(one.event_id)), steps(one.steps), one.replays?.length ? h("ul", { class: "plain" }, one.replays.map((note) => h("li", {}, `replayed by ${note.by}, ${when(note.when)}: ${note.why || note.what}`))) : null])
        : h("p", {}, "No batch has taken it."),
      found.complete ? null : h("p", {}, h("button", { class: "button", type: "button", onclick: () => { this.full = true; this.refresh(); } }, "Look through the whole journal"), h("span", { class: "muted" }, " for other generations and what the rules say now")),
    ];
  }
}
