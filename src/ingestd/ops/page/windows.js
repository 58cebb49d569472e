// Open windows: ten thousand rows, of which only those in sight exist. Pages are fetched as they come into sight.
import { ask } from "./api.js";
import { bytes, duration, fill, h, number, text } from "./dom.js";

const PAGE = 100;
const SORTS = { due: "Due in", dest: "Destination", rule: "Rule", files: "Files", size: "Size" };

export class WindowsView {
  constructor() {
    this.pages = new Map();
    this.total = 0;
    this.sort = "due";
    this.query = "";
    this.skew = 0;
    this.rows = new Map();
    this.space = h("div", { class: "space" });
    this.view = h("div", { class: "virtual", tabindex: "0", role: "rowgroup", "aria-label": "Open windows", onscroll: () => this.scrolled() }, this.space);
    this.shown = h("span", { class: "muted num" });
    this.note = h("p", { class: "empty", hidden: true }, "No window is open here. Rules with a Batch open one with their first file.");
    this.filter = h("input", { class: "filter", type: "search", placeholder: "Filter by table, rule or folder", "aria-label": "Filter by table, rule or folder", oninput: () => this.later() });
    this.heads = Object.fromEntries(Object.entries(SORTS).map(([key, label]) => [key,
      h("button", { type: "button", "aria-pressed": key === "due", onclick: () => this.order(key) }, label)]));
    const { due, dest, rule, files, size } = this.heads;
    const cell = (head, style) => h("span", { role: "columnheader", class: style }, head);
    this.table = h("div", { role: "table", "aria-label": "Open windows" },
      h("div", { class: "grid-head", role: "row" }, cell(due), cell(dest), cell(rule), cell(files, "num"), cell(size, "num"), cell("Owner")),
      this.view);
    this.element = h("section", { class: "card", "aria-label": "Open windows" },
      h("div", { class: "head" }, h("h1", {}, "Open windows"), this.shown, h("span", { class: "fill" }), this.filter),
      h("p", { class: "hint" }, "What this replica collects. A window loads as one batch when its time is over, or when it is full."),
      this.table, this.note);
    this.ticker = setInterval(() => this.tick(), 1000);
    new ResizeObserver(() => this.draw()).observe(this.view);
  }

  get rowHeight() { return matchMedia("(max-width: 640px)").matches ? 58 : 44; }

  close() { clearInterval(this.ticker); }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { this.query = this.filter.value.trim(); this.again(); }, 200);
  }

  order(key) {
    this.sort = this.sort === key ? `-${key}` : key;
    for (const [name, button] of Object.entries(this.heads)) {
      const mine = this.sort.replace("-", "") === name;
      button.setAttribute("aria-pressed", mine);
      text(button, SORTS[name] + (mine ? (this.sort.startsWith("-") ? " ↓" : " ↑") : ""));
    }
    this.again();
  }

  again() {
    this.pages.clear();
    this.view.scrollTop = 0;
    this.refresh();
  }

  inSight() {
    const first = Math.max(0, Math.floor(this.view.scrollTop / this.rowHeight) - 4);
    const last = Math.min(this.total, Math.ceil((this.view.scrollTop + this.view.clientHeight) / this.rowHeight) + 4);
    return [first, Math.max(first, last)];
  }

  async refresh() {
    const [first, last] = this.inSight();
    const wanted = new Set([Math.floor(first / PAGE), Math.floor(Math.max(first, last - 1) / PAGE)]);
    await Promise.all([...wanted].map((page) => this.fetch(page)));
    for (const page of this.pages.keys()) if (!wanted.has(page)) this.pages.delete(page);
    this.draw();
  }

  async fetch(page) {
    const asked = [this.sort, this.query];
    const found = await ask("windows", { offset: page * PAGE, limit: PAGE, sort: this.sort, q: this.query });
    if (asked[0] !== this.sort || asked[1] !== this.query) return;
    this.skew = Date.parse(found.now) - Date.now();
    this.total = found.total;
    this.pages.set(page, found.items);
  }

  scrolled() {
    this.draw();
    const [first, last] = this.inSight();
    const missing = [Math.floor(first / PAGE), Math.floor(Math.max(first, last - 1) / PAGE)].some((page) => !this.pages.has(page));
    if (missing && !this.fetching) {
      this.fetching = true;
      this.refresh().catch(() => {}).finally(() => { this.fetching = false; });
    }
  }

  draw() {
    const height = this.rowHeight;
    this.space.style.height = `${this.total * height}px`;
    this.table.hidden = !this.total;
    this.note.hidden = this.total > 0;
    text(this.shown, this.total ? number(this.total) : "");
    this.table.setAttribute("aria-rowcount", this.total + 1);
    const [first, last] = this.inSight();
    for (const [index, row] of this.rows) if (index < first || index >= last) { row.remove(); this.rows.delete(index); }
    for (let index = first; index < last; index += 1) {
      const item = this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
      let row = this.rows.get(index);
      if (!row) {
        row = h("div", { class: "grid-row", role: "row", "aria-rowindex": index + 2 });
        this.rows.set(index, row);
        this.space.append(row);
      }
      row.style.top = `${index * height}px`;
      fill(row, item ? this.cells(item) : [h("span", { class: "muted" }, "…")]);
    }
    this.tick();
  }

  cells(item) {
    const late = item.sequence ? ` · late ${item.sequence}` : "";
    return [
      h("span", { role: "cell", class: "due-cell" }, h("span", { class: "count-down", "data-due": item.due }, this.left(item.due)[0])),
      h("span", { role: "cell", class: "dest-cell", title: item.name }, item.dest, h("span", { class: "sub" }, `${item.folder || "all folders"}${late}`)),
      h("span", { role: "cell", class: "rule-cell", title: item.rule }, item.rule, h("span", { class: "sub extra" }, item.extension || "any extension")),
      h("span", { role: "cell", class: "num files-cell" }, `${number(item.files)}`, h("span", { class: "sub" }, item.pending ? `${number(item.pending)} in memory` : "durable")),
      h("span", { role: "cell", class: "num extra" }, bytes(item.size)),
      h("span", { role: "cell", class: "extra", title: item.owner }, item.owned ? "this replica" : item.owner || "—"),
    ];
  }

  left(due) {
    const seconds = (Date.parse(due) - Date.now() - this.skew) / 1000;
    return seconds > 0 ? [duration(Math.ceil(seconds)), false] : ["closing", true];
  }

  tick() {
    for (const element of this.space.querySelectorAll("[data-due]")) {
      const [words, due] = this.left(element.dataset.due);
      text(element, words);
      element.classList.toggle("due", due);
    }
  }
}
