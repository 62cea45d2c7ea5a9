// The list of streams: search, scopes, pages; create and delete.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { badge, dialog, failure, field, go, later, link, pager, select, table, toast } from "../parts.js";
import { policyFields } from "./policies.js";

const LIMIT = 50;

/** A list of things with search, scopes and pages; `draw(rows)` makes the table. */
export async function list({ root, params, onEnd }, { title, place, call, draw, actions = [] }) {
  const now = { scope: params.scope ?? "", q: params.q ?? "", offset: Number(params.offset) || 0 };
  const results = h("div", { "aria-busy": "true" });
  const said = h("p", { class: "unseen", role: "status" });
  const search = h("input", { type: "search", value: now.q, placeholder: "Search by name", spellcheck: "false", "aria-label": "Search by name" });
  const scopes = select([["", "All scopes"]], "", (scope) => change({ scope, offset: 0 }));
  scopes.setAttribute("aria-label", "Scope");
  fill(root, h("div", { class: "head" }, h("h1", {}, title), h("div", { class: "actions" }, actions)),
    h("div", { class: "filters" }, search, scopes), said, results);
  let asked = 0;
  async function load() {
    const mine = asked += 1;
    results.setAttribute("aria-busy", "true");
    try {
      const page = await api.get(call, { ...now, limit: LIMIT });
      if (mine !== asked) return;
      const foot = h("div", {});
      fill(results, draw(page.rows), foot);
      footer(foot, page);
      // The rows are there before the last name is read.
      if (!page.counted) count(mine, foot);
    } catch (error) {
      if (mine === asked) fill(results, failure(error));
    } finally {
      if (mine === asked) results.setAttribute("aria-busy", "false");
    }
  }
  function footer(foot, { total, counted, complete }) {
    said.textContent = counted ? `${total} found` : `more than ${now.offset + LIMIT} found`;
    fill(foot, complete ? null : h("p", { class: "muted" }, "There are more: search by name or choose a scope."),
      pager(total, counted, now.offset, LIMIT, (offset) => change({ offset })));
  }
  async function count(mine, foot) {
    try {
      const found = await api.get(call, { scope: now.scope, q: now.q, limit: 1, counted: 1 });
      if (mine === asked) footer(foot, found);
    } catch { /* the page is of use without a number; the corner says when the node is away */ }
  }
  function change(more) {
    Object.assign(now, more);
    history.replaceState(null, "", `#/${place}${api.query(now)}`);
    load();
  }
  const searching = later((q) => change({ q, offset: 0 }), 200);
  search.addEventListener("input", () => searching(search.value));
  onEnd(() => { asked += 1; });
  const [found] = await Promise.all([api.get("/scopes"), load()]);
  for (const scope of found.scopes.slice(0, 1000)) scopes.append(h("option", { value: scope, selected: scope === now.scope }, scope));
  return { reload: load, scopes: found.may_create, scopesToo: found.may_create_scopes, scope: () => (found.may_create.includes(now.scope) ? now.scope : "") };
}

export async function streams(context) {
  // It can be pressed while the list still loads; who may create none sees it no more then.
  const create = h("button", { type: "button", class: "primary", hidden: !context.writes, onclick: async () => createStream(await made) }, "Create stream");
  const made = list(context, {
    title: "Streams", place: "streams", call: "/streams", actions: [create],
    draw: (rows) => table("Streams", [
      ["Stream", (s) => link(`#/streams/${encodeURIComponent(s.scope)}/${encodeURIComponent(s.stream)}`, h("span", { class: "muted" }, `${s.scope}/`), s.stream)],
      ["Segments", (s) => (s.gone ? "–" : s.sealed ? badge("", "sealed") : f.count(s.segments)), "num"],
      ["Rate", (s) => (s.byte_rate === null || s.byte_rate === undefined ? "–" : f.rate(s.byte_rate)), "num"],
      ["Scaling", (s) => (s.gone ? "deleted" : f.scaling(s.scaling))],
      ["Retention", (s) => (s.gone ? "" : f.retention(s.retention))],
      ["Tags", (s) => s.tags?.map((tag) => badge("tag", tag))],
    ], rows, "No stream has this name."),
  });
  const { scopes, scopesToo } = await made;
  if (!scopes.length && !scopesToo) create.remove();
}

function createStream({ scopes, scopesToo, scope, reload }) {
  const where = h("input", { type: "text", value: scope() || scopes[0] || "", list: "scopes", required: true, autocomplete: "off", spellcheck: "false" });
  const name = h("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false" });
  const policies = policyFields();
  dialog("Create stream", [
    field("Scope", where, scopesToo ? "Created, too, if it is missing." : "One of those in which you may create streams."),
    h("datalist", { id: "scopes" }, scopes.slice(0, 200).map((each) => h("option", { value: each }))),
    field("Name", name, "Letters, digits, '.' and '-'."), policies.node,
  ], "Create", async () => {
    const made = await api.send("POST", "/streams", { scope: where.value.trim(), stream: name.value.trim(), create_scope: scopesToo && !scopes.includes(where.value.trim()), ...policies.values() });
    toast(made.created ? `Stream ${made.scope}/${made.stream} created` : "That stream exists already", made.created ? "good" : "warn");
    if (!made.created) { await reload(); return; }
    // The list that is left is not asked for again.
    go(`#/streams/${encodeURIComponent(made.scope)}/${encodeURIComponent(made.stream)}`);
  });
  name.focus();
}
