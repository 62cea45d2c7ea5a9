// Key-value tables and their entries, page by page; changes of one entry.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { confirm, copyButton, dialog, failure, field, go, later, link, panel, select, table as grid, toast } from "../parts.js";
import * as shell from "../shell.js";
import { list } from "./streams.js";

export const tables = (context) => list(context, {
  title: "Key-value tables", place: "tables", call: "/tables",
  draw: (rows) => grid("Key-value tables", [
    ["Table", (t) => link(`#/tables/${t.table.split("/").map(encodeURIComponent).join("/")}`, t.table)],
    ["Partitions", (t) => f.count(t.partitions), "num"], ["Primary key", (t) => f.bytes(t.primary_key_bytes), "num"],
    ["Secondary key", (t) => (t.secondary_key_bytes ? f.bytes(t.secondary_key_bytes) : "none"), "num"],
  ], rows, "No table has this name."),
});

const KINDS = [["text", "Text"], ["base64", "Bytes in base64"]];
const keyName = (entry) => [entry.primary, entry.secondary].filter(Boolean).map((part) => f.decode(part).line).join(" / ");
const keyOf = (entry) => ({ primary: entry.primary.base64, secondary: entry.secondary?.base64 ?? "" });

/** Bytes that a person gives, as base64. */
const given = (text, kind) => (kind === "base64" ? text.replace(/\s+/g, "") : f.toBase64(new TextEncoder().encode(text)));

function valueFields(value) {
  const text = value ? f.utf8(value) : "";
  const kind = select(KINDS, text === null ? "base64" : "text");
  const input = h("textarea", { rows: "8", spellcheck: "false" });
  input.value = text ?? value.base64;
  return { nodes: [field("Value", input), field("Value is", kind)], input, read: () => ({ base64: given(input.value, kind.value) }) };
}

async function edit(call, name, entry, done) {
  const found = entry.value.cut ? await api.get(`${call}/entry`, keyOf(entry)) : entry;
  if (found.value.cut) throw new Error(`the value has ${f.bytes(found.value.bytes)}: change it with sarit table put`);
  const value = valueFields(found.value);
  dialog(`Change ${keyName(entry)} of ${name}`, value.nodes, "Save", async () => {
    await api.send("POST", `${call}/entry`, { ...keyOf(entry), ...value.read(), version: found.version });
    toast(`${keyName(entry)} is changed`);
    done();
  });
  value.input.focus();
}

function add(call, name, page, done) {
  const kind = select(KINDS, "text");
  const text = () => h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const primary = text();
  const secondary = text();
  const value = valueFields(null);
  dialog(`Add an entry to ${name}`, [
    field("Key", primary, `${page.primary_key_bytes} bytes.`), page.secondary_key_bytes > 0 && field("Secondary key", secondary, `${page.secondary_key_bytes} bytes.`),
    field("Keys are", kind), value.nodes,
  ], "Add", async () => {
    await api.send("POST", `${call}/entry`, { primary: given(primary.value, kind.value), secondary: given(secondary.value, kind.value), ...value.read() });
    toast(`${primary.value} is added`);
    done();
  });
  primary.focus();
}

const remove = (call, name, entry, done) => confirm(`Delete ${keyName(entry)} of ${name}`, "The key and its value are deleted, for good, unless somebody has changed it meanwhile.", "Delete", async () => {
  await api.send("DELETE", `${call}/entry`, { ...keyOf(entry), version: entry.version });
  toast(`${keyName(entry)} is deleted`);
  done();
});

const removeTable = (call, name, scope) => confirm(`Delete ${name}`, "The table and everything in it are deleted, for good.", "Delete", async () => {
  await api.send("DELETE", call, { confirm: name });
  toast(`Table ${name} deleted`);
  go(`#/tables?scope=${encodeURIComponent(scope)}`);
}, name);

export async function table({ root, parts, writes, onEnd }) {
  const call = api.path("tables", ...parts);
  const name = parts.join("/");
  const results = h("div", {});
  const actions = h("div", { class: "actions" });
  const said = h("p", { class: "unseen", role: "status" });
  const search = h("input", { type: "search", placeholder: "Keys that begin with…, or base64:…", spellcheck: "false", "aria-label": "Keys that begin with" });
  const back = []; // where the pages before began
  let after = "";
  let asked = 0;
  const again = h("button", { type: "button", onclick: () => { after = ""; back.length = 0; load(); } }, "Refresh");
  fill(root, h("nav", { class: "crumbs", "aria-label": "Breadcrumb" }, link("#/tables", "Tables"), " / ", parts[0]),
    h("div", { class: "head" }, h("h1", {}, parts[1]), actions),
    h("div", { class: "filters" }, search, again), said, results);
  const cell = (value) => (value ? h("code", {}, f.decode(value).line) : "–");
  const value = (found) => {
    const shown = f.decode(found);
    if (shown.text.length < 80 && !shown.text.includes("\n")) return h("code", {}, shown.line);
    return h("details", {}, h("summary", {}, h("code", { class: "line" }, shown.line.slice(0, 80))),
      h("pre", { tabindex: "0" }, shown.text), found.cut && h("p", { class: "muted" }, `of ${f.bytes(found.bytes)}`));
  };
  const changes = (entry) => h("span", { class: "row-actions" },
    h("button", { type: "button", class: "small", "aria-label": `Edit ${keyName(entry)}`, onclick: async () => { try { await edit(call, name, entry, load); } catch (error) { toast(error.message, "bad"); } } }, "Edit"),
    h("button", { type: "button", class: "small danger-line", "aria-label": `Delete ${keyName(entry)}`, onclick: () => remove(call, name, entry, load) }, "Delete"));
  function head(page) {
    const may = writes && page.may_change;
    fill(actions,
      copyButton("Copy as command", () => [
        ["Entries in the order of their keys", shell.command("sarit", "table", "scan", name, search.value && shell.plain(search.value) && !search.value.startsWith("base64:") ? shell.option("prefix", search.value) : null)],
        page.rows.length > 0 && ["The value of the first key", getCommand(name, page.rows[0])],
      ]),
      may && h("button", { type: "button", onclick: () => add(call, name, page, load) }, "Add an entry"),
      may && h("button", { type: "button", class: "danger-line", onclick: () => removeTable(call, name, parts[0]) }, "Delete table"));
    return may;
  }
  async function load() {
    const mine = asked += 1;
    try {
      const page = await api.get(call, { prefix: search.value, after });
      if (mine !== asked) return;
      said.textContent = `${page.rows.length} ${page.rows.length === 1 ? "entry" : "entries"}`;
      const may = head(page);
      fill(results,
        h("p", { class: "muted" }, `${page.partitions} ${page.partitions === 1 ? "partition" : "partitions"}, keys of ${page.primary_key_bytes}${page.secondary_key_bytes ? ` + ${page.secondary_key_bytes}` : ""} bytes`),
        panel(null, grid("Entries", [
          ["Key", (e) => cell(e.primary)], page.secondary_key_bytes && ["Secondary", (e) => cell(e.secondary)], ["Value", (e) => value(e.value)],
          ["Size", (e) => f.bytes(e.value.bytes), "num"], ["Version", (e) => f.count(e.version), "num"], may && ["Change", changes, "num"],
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

/** Keys that are no text are given in base64, all of them. */
function getCommand(name, entry) {
  const parts = [entry.primary, entry.secondary].filter(Boolean);
  const texts = parts.map(f.utf8);
  const plain = texts.every((text) => text !== null && shell.plain(text));
  const [primary, secondary] = plain ? texts : parts.map((part) => part.base64);
  return shell.command("sarit", "table", "get", plain ? null : "--base64", secondary === undefined ? null : shell.option("secondary", secondary), name, "--", primary);
}
