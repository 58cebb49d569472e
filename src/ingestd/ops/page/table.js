// A paged, filtered table that refreshes in place.
import { ask } from "./api.js";
import { fill, h, number, text } from "./dom.js";

const PAGE = 50;

export class PagedTable {
  // columns: [{ label, class, cell(item) -> node or string }]
  constructor({ title, path, columns, placeholder, empty, choices = null, hint = "", extra = null, page = PAGE, heading = "h1" }) {
    Object.assign(this, { path, columns, empty, extra, page, offset: 0, query: "", kind: "" });
    this.body = h("tbody");
    this.note = h("p", { class: "empty", hidden: true }, empty);
    this.shown = h("span");
    this.back = h("button", { class: "button", type: "button", onclick: () => this.turn(-1) }, "Newer");
    this.on = h("button", { class: "button", type: "button", onclick: () => this.turn(1) }, "Older");
    this.filter = h("input", { class: "filter", type: "search", placeholder, "aria-label": placeholder, oninput: () => this.later() });
    this.above = h("div");
    this.head = h("div", { class: "head" }, h(heading, {}, title), h("span", { class: "fill" }));
    if (choices) this.head.append(this.choose(choices));
    this.head.append(this.filter);
    this.element = h("section", { class: "card", "aria-label": title }, this.head, hint && h("p", { class: "hint" }, hint), this.above,
      this.scroll = h("div", { class: "scroll" }, h("table", { class: "cards" },
        h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.class }, column.label)))), this.body)),
      this.note, this.pager = h("div", { class: "pager", hidden: true }, this.shown, this.back, this.on));
  }

  choose(choices) {
    const select = h("select", { "aria-label": "Show only", onchange: (event) => { this.kind = event.target.value; this.again(); } },
      choices.map(([value, label]) => h("option", { value }, label)));
    this.select = select;
    return select;
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { this.query = this.filter.value.trim(); this.again(); }, 200);
  }

  again() {
    this.offset = 0;
    this.refresh();
  }

  turn(by) {
    this.offset = Math.max(0, this.offset + by * this.page);
    this.refresh();
  }

  async refresh() {
    const asked = { offset: this.offset, limit: this.page, q: this.query, kind: this.kind };
    const found = await ask(this.path, asked);
    if (asked.offset !== this.offset || asked.q !== this.query || asked.kind !== this.kind) return;
    this.now = found.now ?? new Date().toISOString();
    fill(this.body, found.items.map((item) => h("tr", {}, this.columns.map((column) =>
      h("td", { class: column.class, "data-label": column.label }, column.cell(item, this.now) ?? "")))));
    this.note.hidden = found.total > 0;
    this.scroll.hidden = !found.total;
    this.back.disabled = !this.offset;
    this.on.disabled = found.next === null;
    this.pager.hidden = found.total <= this.page;
    const last = this.offset + found.items.length;
    text(this.shown, found.total ? `${number(this.offset + 1)}–${number(last)} of ${number(found.total)}` : "");
    if (this.extra) this.extra(found, this);
  }
}
