// One stream: its heat map, events, configuration and transactions, each behind a tab.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { badge, confirm, copyButton, dialog, facts, field, go, link, notice, panel, state, table, toast } from "../parts.js";
import * as shell from "../shell.js";
import { find } from "./find.js";
import { heat } from "./heat.js";
import { PAST, placeField } from "./places.js";
import { policyFields } from "./policies.js";
import { queryOf } from "./query.js";
import { search } from "./search.js";
import { tail } from "./tail.js";
import { writeEvent } from "./write.js";

const REFRESH_MS = 5000;
const TABS = [["heat", "Heat map"], ["events", "Events"], ["search", "Search"], ["config", "Configuration"], ["transactions", "Transactions"]];

export async function stream(context) {
  const { root, parts, onEnd } = context;
  const [scope, name, tab = "heat"] = parts;
  const call = api.path("streams", scope, name);
  const hash = `#/streams/${encodeURIComponent(scope)}/${encodeURIComponent(name)}`;
  const info = await api.get(call);
  const writes = context.writes && info.may_change;
  const write = writes && h("button", { type: "button", disabled: info.sealed, onclick: () => writeEvent(call, `${scope}/${name}`) }, "Write an event");
  const body = h("div", {});
  const figures = h("div", { class: "figures" });
  const draw = (now) => fill(figures,
    one("Size", f.bytes(now.bytes)), one("Rate", rates(now)), one("Segments", now.sealed ? "0, sealed" : f.count(now.segments.length)), one("Epoch", f.count(now.epoch)),
    one("Scaling", f.scaling(now.scaling)), one("Retention", f.retention(now.retention)),
    now.iceberg && one("Iceberg table", lag(now.iceberg)), now.search && one("Search index", lag(now.search)));
  draw(info);
  const timer = setInterval(async () => {
    // What nobody sees costs the node nothing.  A failure shows at the foot of the page, which is always connected.
    try { if (!document.hidden) draw(await api.get(call)); } catch { /* the next one may succeed */ }
  }, REFRESH_MS);
  onEnd(() => clearInterval(timer));
  fill(root,
    h("nav", { class: "crumbs", "aria-label": "Breadcrumb" }, link("#/streams", "Streams"), " / ", link(`#/streams?scope=${encodeURIComponent(scope)}`, scope)),
    h("div", { class: "head" }, h("h1", {}, name, " ", info.sealed && badge("", "sealed")), h("div", { class: "actions" }, context.queries && h("button", { type: "button", onclick: () => go(queryOf(scope, name)) }, "Query"), write)),
    figures,
    h("nav", { class: "tabs", "aria-label": "Parts of the stream" }, TABS.map(([id, text]) =>
      h("a", { href: `${hash}/${id}`, "aria-current": id === tab ? "page" : null }, text))),
    body);
  root.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  const inner = { root: body, call, info, hash, writes, params: context.params, user: context.user, schemas: context.schemas, onEnd };
  const indexed = info.search && !context.params.scan;
  const view = { heat, events: tail, search: indexed ? find : search, config, transactions }[tab];
  if (!view) throw new Error("there is no such part of a stream");
  await view(inner);
}

/** Bytes and events per second; of a sealed stream none. */
const rates = (found) => (found.byte_rate === null || found.byte_rate === undefined ? "–" : h("span", {}, f.rate(found.byte_rate), h("span", { class: "second" }, ` ${f.count(found.event_rate)} events/s`)));

/** How far a table is behind its stream, or that nothing is committed. */
const lag = (found) => (found.problem ? badge("bad", "failing") : found.lag_bytes === null ? found.state : h("span", {}, f.bytes(found.lag_bytes), h("span", { class: "second" }, " behind")));

/** The Iceberg table of a stream, for its configuration. */
const iceberg = (found) => panel("Iceberg table",
  found.problem && notice("bad", found.problem),
  facts(
    ["Table", h("code", {}, found.table)], ["State", state(found.state)], ["Rows", `${f.count(found.rows)} in ${f.count(found.files)} files`],
    ["Behind", found.lag_bytes === null ? "unknown" : f.bytes(found.lag_bytes)], ["Last commit", found.last_commit_ms ? f.moment(found.last_commit_ms) : "none"],
    ["Dead letters", found.dead_letters ? h("span", {}, f.count(found.dead_letters), " in ", h("code", {}, found.dead_letter_table)) : "none"],
    ["Lost by truncation", found.gap_bytes ? f.bytes(found.gap_bytes) : "nothing"], ["Values", found.value], ["Commits", `every ${f.count(found.interval_seconds)} s`],
    ["Worker", found.worker ? h("code", {}, found.worker) : "none"]));

/** The index of a stream for full-text search, for its configuration. */
const searchIndex = (found) => panel("Search index",
  found.problem && notice("bad", found.problem),
  facts(
    ["State", state(found.state)], ["Events", `${f.count(found.events)} in ${f.count(found.shards)} shards`], ["Size", f.bytes(found.bytes)],
    ["Behind", found.lag_bytes === null ? "unknown" : f.bytes(found.lag_bytes)], ["Last commit", found.last_commit_ms ? f.moment(found.last_commit_ms) : "none"],
    ["Fields", found.mapping ? Object.entries(found.mapping.fields).map(([path, kind]) => badge("tag", `${path}: ${kind}`)) : "inferred from events"],
    ["Searched in part", found.partly ? `${f.count(found.partly)} events` : "none"], ["Lost by truncation", found.lost_bytes ? f.bytes(found.lost_bytes) : "nothing"],
    ["Commits", `every ${f.count(found.interval_seconds)} s`], ["Worker", found.worker ? h("code", {}, found.worker) : "none"]));

const one = (name, value) => h("div", { class: "figure small" }, h("span", { class: "name" }, name), h("span", { class: "value" }, value));

async function config({ root, call, info, writes, user }) {
  const name = `${info.scope}/${info.stream}`;
  const again = () => dispatchEvent(new HashChangeEvent("hashchange"));
  const change = () => {
    const policies = policyFields(info);
    dialog(`Change ${name}`, policies.node, "Save", async () => {
      await api.send("PATCH", call, policies.values());
      toast("Saved");
      again();
    });
  };
  const scale = () => {
    const wanted = h("input", { type: "number", min: "1", step: "1", value: String(Math.max(1, info.segments.length)) });
    dialog(`Scale ${name}`, [h("p", {}, "Replace the segments by this number of equal ones. Order per key is kept."), field("Segments", wanted)], "Scale", async () => {
      await api.send("POST", `${call}/scale`, { segments: Number(wanted.value) });
      toast("Scaled");
      again();
    });
  };
  const button = (text, onclick, kind = "") => h("button", { type: "button", class: kind, onclick }, text);
  const truncate = () => {
    const place = placeField("Delete all events", [["tail", "that are in it now"], ...PAST.map(([value, text]) => [value, `from before ${text}`])], "tail",
      "Of a time: up to the last recorded position before it, so that no later event is deleted.");
    const typed = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    dialog(`Truncate ${name}`, [place.node, field(`Type ${name} to confirm`, typed)], "Truncate", async () => {
      if (typed.value.trim() !== name) throw new Error(`type ${name} to confirm`);
      await api.send("POST", `${call}/truncate`, { cut: place.value() });
      toast(`${name} is truncated`);
      again();
    }, "danger");
  };
  fill(root,
    h("div", { class: "grid" },
      panel("Configuration", facts(
        ["Scaling", f.scaling(info.scaling)], ["Retention", f.retention(info.retention)],
        ["Tags", info.tags.length ? info.tags.map((tag) => badge("tag", tag)) : "none"], ["State", info.sealed ? "sealed" : "active"],
        ["Size", f.bytes(info.bytes)], ["Segments with data", f.count(info.all_segments)])),
      writes && panel("Changes", h("div", { class: "actions left" },
        !info.sealed && button("Change configuration", change), !info.sealed && button("Scale", scale),
        button("Truncate", truncate, "danger-line"),
        !info.sealed && button("Seal", () => confirm(`Seal ${name}`, "The stream refuses further events, for ever. What is in it can still be read.", "Seal", async () => {
          await api.send("POST", `${call}/seal`);
          toast("Sealed");
          again();
        }, name), "danger-line"),
        button("Delete", () => confirm(`Delete ${name}`, "The stream and all its events are deleted, for good.", "Delete", async () => {
          await api.send("DELETE", call, { confirm: name });
          toast(`Stream ${name} deleted`);
          go(`#/streams?scope=${encodeURIComponent(info.scope)}`);
        }, name), "danger-line"))),
      panel("Positions", facts(["Head cut", h("code", { class: "cut" }, info.head)], ["Tail cut", h("code", { class: "cut" }, info.tail)]),
        h("p", { class: "muted" }, "A cut is a position in all segments at once: ", h("code", { class: "cli" }, "sarit read --from"), " takes it."),
        h("div", { class: "actions left" }, copyButton("Copy as command", () => [
          ["The stream", shell.command("sarit", "stream", "info", name)], ["Its events", shell.readCommand(name, shell.option("from", info.head))],
          ["Its configuration as JSON, over HTTP", shell.curl(location.origin, `/v1/scopes/${info.scope}/streams/${info.stream}`, user)],
        ])))),
    info.iceberg && iceberg(info.iceberg),
    info.search && searchIndex(info.search),
    panel("Active segments", segments(info)));
}

const segments = (info) => table("Active segments", [
  ["Segment", (s) => h("code", {}, s.segment)], ["Keys", (s) => f.keys(s.low, s.high)], ["Bytes", (s) => f.bytes(s.end - s.start), "num"],
  ["From", (s) => f.count(s.start), "num"], ["To", (s) => f.count(s.end), "num"], ["Changed", (s) => (s.modified_ms ? f.moment(s.modified_ms) : "–")],
  ["Rate", (s) => f.rate(s.byte_rate), "num"], ["Events", (s) => (s.event_rate === null ? "–" : `${f.count(s.event_rate)}/s`), "num"],
  ["Store", (s) => h("code", {}, s.store)],
], info.segments, "The stream is sealed: it has no active segment.");

async function transactions({ root, call }) {
  const found = await api.get(`${call}/transactions`);
  fill(root,
    panel("Open", table("Open transactions", [
      ["Transaction", (t) => h("code", {}, t.id)], ["State", (t) => state(t.state)], ["Began", (t) => f.moment(t.began_ms)],
      ["Age", (t) => f.duration(Date.now() - t.began_ms), "num"], ["Lease", (t) => f.duration(t.lease_ms), "num"], ["Left", (t) => f.duration(t.left_ms), "num"],
    ], found.open, "No transaction is open."),
    found.open.length >= found.most && h("p", { class: "muted" }, `The first ${found.most} are shown.`)),
    panel("Ended last", table("Ended transactions", [["Transaction", (t) => h("code", {}, t.id)], ["State", (t) => state(t.state)]],
      found.ended.slice(0, 100), "None that the controller still knows.")));
}
