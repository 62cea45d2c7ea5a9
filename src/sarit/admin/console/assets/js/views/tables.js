// Key-value tables and their entries, page by page.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { failure, later, link, panel, table as grid } from "../parts.js";
import { list } from "./streams.js";

export const tables = (context) => list(context, {
  title: "Key-value tables", place: "tables", call: "/tables",
  draw: (rows) => grid("Key-value tables", [
    ["Table", (t) => link(`#/tables/${t.table.split("/").map(encodeURIComponent).join("/")}`, t.table)],
    ["Partitions", (t) => f.count(t.partitions), "num"], ["Primary key", (t) => f.bytes(t.primary_key_bytes), "num"],
    ["Secondary key", (t) => (t.secondary_key_bytes ? f.bytes(t.secondary_key_bytes) : "none"), "num"],
  ], rows, "No table has this name."),
});

export async function table({ root, parts, onEnd }) {
  const call = api.path("tables", ...parts);
  const results = h("div", {});
  const said = h("p", { class: "unseen", role: "status" });
  const search = h("input", { type: "search", placeholder: "Keys that begin with…, or base64:…", spellcheck: "false", "aria-label": "Keys that begin with" });
  const back = []; // where the pages before began
  let after = "";
  let asked = 0;
  const values = h("button", { type: "button", onclick: () => { after = ""; back.length = 0; load(); } }, "Refresh");
  fill(root, h("nav", { class: "crumbs", "aria-label": "Breadcrumb" }, link("#/tables", "Tables"), " / ", parts[0]), h("h1", {}, parts[1]),
    h("div", { class: "filters" }, search, values), said, results);
  const cell = (value) => (value ? h("code", {}, f.decode(value).line) : "–");
  const value = (found) => {
    const shown = f.decode(found);
    if (shown.text.length < 80 && !shown.text.includes("\n")) return h("code", {}, shown.line);
    return h("details", {}, h("summary", {}, h("code", { class: "line" }, shown.line.slice(0, 80))),
      h("pre", { tabindex: "0" }, shown.text), found.cut && h("p", { class: "muted" }, `of ${f.bytes(found.bytes)}`));
  };
  async function load() {
    const mine = asked += 1;
    try {
      const page = await api.get(call, { prefix: search.value, after });
      if (mine !== asked) return;
      said.textContent = `${page.rows.length} entries`;
      fill(results,
        h("p", { class: "muted" }, `${page.partitions} ${page.partitions === 1 ? "partition" : "partitions"}, keys of ${page.primary_key_bytes}${page.secondary_key_bytes ? ` + ${page.secondary_key_bytes}` : ""} bytes`),
        panel(null, grid("Entries", [
          ["Key", (e) => cell(e.primary)], page.secondary_key_bytes && ["Secondary", (e) => cell(e.secondary)], ["Value", (e) => value(e.value)],
          ["Size", (e) => f.bytes(e.value.bytes), "num"], ["Version", (e) => f.count(e.version), "num"],
        ].filter(Boolean), page.rows, "No entry has such a key.")),
        h("nav", { class: "pager", "aria-label": "Pages" },
          h("button", { type: "button", disabled: !back.length, onclick: () => { after = back.pop(); load(); } }, "Previous"),
          h("button", { type: "button", disabled: !page.next, onclick: () => { back.push(after); after = page.next; load(); } }, "Next")));
    } catch (error) {
      if (mine === asked) fill(results, failure(error));
    }
  }
  search.addEventListener("input", later(() => { after = ""; back.length = 0; load(); }, 200));
  onEnd(() => { asked += 1; });
  await load();
}
