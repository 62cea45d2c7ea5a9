// The schema registry: groups, their versions, the text of one, and what differs between two.

import * as api from "../api.js";
import { diff } from "../diff.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { badge, copyButton, facts, failure, later, link, pager, panel, select, table } from "../parts.js";
import * as shell from "../shell.js";

const LIMIT = 50;
// No namespace has a "~" in its name: it stands for the default one, whose name is empty.
const hashOf = (namespace, group) => `#/schemas/${encodeURIComponent(namespace || "~")}/${encodeURIComponent(group)}`;
const nameOf = (namespace, group) => (namespace ? [h("span", { class: "muted" }, `${namespace}/`), group] : group);

/** A subject as Confluent's API names a group. */
const subject = (namespace, group) => (namespace ? `:.${namespace}:${group}` : group);

export async function schemas({ root, params, onEnd }) {
  const now = { q: params.q ?? "", offset: Number(params.offset) || 0 };
  const results = h("div", { "aria-busy": "true" });
  const said = h("p", { class: "unseen", role: "status" });
  const search = h("input", { type: "search", value: now.q, placeholder: "Names that begin with…", spellcheck: "false", "aria-label": "Names that begin with" });
  fill(root, h("div", { class: "head" }, h("h1", {}, "Schemas"), h("div", { class: "actions" },
    copyButton("Copy as command", () => [["All subjects", shell.command("sarit", "schema", "list", "--latest")]]))),
  h("div", { class: "filters" }, search), said, results);
  let asked = 0;
  async function load() {
    const mine = asked += 1;
    results.setAttribute("aria-busy", "true");
    try {
      const page = await api.get("/schemas", { ...now, limit: LIMIT });
      if (mine !== asked) return;
      said.textContent = `${page.total} found`;
      fill(results, table("Schemas", [
        ["Group", (g) => link(hashOf(g.namespace, g.group), nameOf(g.namespace, g.group))],
        ["Format", (g) => (g.latest ? g.latest.kind : g.gone ? "deleted" : "–")],
        ["Versions", (g) => (g.gone ? "–" : f.count(g.versions)), "num"],
        ["Latest", (g) => (g.latest ? f.count(g.latest.number) : "–"), "num"],
        ["Schema id", (g) => (g.latest ? f.count(g.latest.schema_id) : "–"), "num"],
        ["Compatibility", (g) => g.policy],
        ["State", (g) => [!g.gone && !g.versions && g.deleted > 0 && badge("warn", "deleted"), g.mode && g.mode !== "READWRITE" && badge("info", g.mode)]],
      ], page.rows, now.q ? "No group has such a name." : "No schema is registered yet."),
      pager(page.total, true, now.offset, LIMIT, (offset) => change({ offset })));
    } catch (error) {
      if (mine === asked) fill(results, failure(error));
    } finally {
      if (mine === asked) results.setAttribute("aria-busy", "false");
    }
  }
  function change(more) {
    Object.assign(now, more);
    history.replaceState(null, "", `#/schemas${api.query(now)}`);
    load();
  }
  const searching = later((q) => change({ q, offset: 0 }), 200);
  search.addEventListener("input", () => searching(search.value));
  onEnd(() => { asked += 1; });
  await load();
}

export async function schema({ root, parts, params, onEnd }) {
  const [place, group] = parts;
  const namespace = place === "~" ? "" : place;
  const found = await api.get("/schemas/group", { namespace, group });
  const numbers = found.versions.map((one) => one.number).reverse();
  const wanted = Number(params.version);
  const now = { version: numbers.includes(wanted) ? wanted : numbers[0], with: Number(params.with) || 0 };
  const shown = h("div", {});
  const name = (n) => `Version ${n}${found.versions.find((one) => one.number === n).deleted ? " (deleted)" : ""}`;
  const version = select(numbers.map((n) => [String(n), name(n)]), String(now.version), (n) => change({ version: Number(n) }));
  const other = select([["0", "with nothing"], ...numbers.map((n) => [String(n), name(n)])], String(now.with), (n) => change({ with: Number(n) }));
  version.setAttribute("aria-label", "Version");
  other.setAttribute("aria-label", "Compare with");
  const texts = new Map();
  let asked = 0;
  fill(root, h("nav", { class: "crumbs", "aria-label": "Breadcrumb" }, link("#/schemas", "Schemas"), namespace && [" / ", namespace]),
    h("div", { class: "head" }, h("h1", {}, group), h("div", { class: "actions" }, copyButton("Copy as command", () => [
      ["This version", shell.command("sarit", "schema", "show", subject(namespace, group), shell.option("version", String(now.version)))],
      ["Its text alone", shell.command("sarit", "schema", "show", subject(namespace, group), shell.option("version", String(now.version)), "--text")],
      ["All versions", shell.command("sarit", "schema", "list", shell.option("subject", subject(namespace, group)), "--deleted")],
    ]))),
    panel(null, facts(
      ["Compatibility", [found.policy, " ", h("span", { class: "muted" }, found.own_policy ? "of this group" : "of all groups")]],
      ["Mode", found.mode], found.codecs.length > 0 && ["Codecs", found.codecs.join(", ")])),
    panel("Versions", table("Versions", [
      ["Version", (one) => link(`${hashOf(namespace, group)}?version=${one.number}`, f.count(one.number))], ["Schema id", (one) => f.count(one.schema_id), "num"],
      ["Format", (one) => one.kind], ["Type", (one) => (one.type ? h("code", {}, one.type) : "–")],
      ["Registered", (one) => (one.created_ms ? f.moment(one.created_ms) : "–")], ["State", (one) => one.deleted && badge("warn", "deleted")],
    ], [...found.versions].reverse(), "This group has no version.")),
    numbers.length > 0 && panel("Text", h("div", { class: "filters" }, version, other), shown));
  async function text(n) {
    if (!texts.has(n)) texts.set(n, await api.get("/schemas/version", { namespace, group, number: n }));
    return texts.get(n);
  }
  async function draw() {
    const mine = asked += 1;
    try {
      const one = await text(now.version);
      const two = now.with ? await text(now.with) : null;
      if (mine !== asked) return;
      const used = (list) => list.map((each) => h("div", {}, each.name && [h("code", {}, each.name), " = "], link(`${hashOf(namespace, each.group)}?version=${each.version}`, `${each.group}, version ${each.version}`)));
      fill(shown,
        facts(one.references.length > 0 && ["Refers to", used(one.references)], one.referrers.length > 0 && ["Is referred to by", used(one.referrers)]),
        two ? comparison(readable(two.text), readable(one.text), now) : h("pre", { tabindex: "0", "aria-label": "Text of the schema" }, readable(one.text)));
    } catch (error) {
      if (mine === asked) fill(shown, failure(error));
    }
  }
  function change(more) {
    Object.assign(now, more);
    history.replaceState(null, "", `${hashOf(namespace, group)}${api.query(now)}`);
    draw();
  }
  onEnd(() => { asked += 1; });
  if (numbers.length) await draw();
}

/** JSON on several lines, other texts as they are. */
function readable(text) {
  try { JSON.parse(text); } catch { return text; }
  return f.pretty(text);
}

function comparison(before, after, now) {
  const lines = diff(before.split("\n"), after.split("\n"));
  if (!lines) return h("p", { class: "muted" }, "The two texts are too long to be compared here.");
  const changed = lines.filter(([kind]) => kind !== " ").length;
  return [
    h("p", { class: "muted", role: "status" }, changed ? `${changed} lines differ: − of version ${now.with}, + of version ${now.version}` : "The texts are the same."),
    h("pre", { tabindex: "0", class: "diff", "aria-label": `Differences of version ${now.version} from ${now.with}` },
      lines.map(([kind, line]) => h("span", { class: { "+": "added", "-": "removed" }[kind] ?? null }, `${kind} ${line}\n`))),
  ];
}
