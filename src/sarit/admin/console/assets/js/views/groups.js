// Reader groups: lag and owners; resets, lost readers, deletion.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { badge, confirm, copyButton, dialog, failure, figure, go, link, notice, panel, state, table, toast } from "../parts.js";
import * as shell from "../shell.js";
import { PAST, placeField } from "./places.js";
import { list } from "./streams.js";

const INTERVAL_MS = 3000;
const LAG_INTERVAL_MS = 15000;
const toStream = (name) => link(`#/streams/${name.split("/").map(encodeURIComponent).join("/")}`, name);

export const groups = (context) => list(context, {
  title: "Reader groups", place: "groups", call: "/groups",
  draw: (rows) => table("Reader groups", [
    ["Group", (g) => link(`#/groups/${g.group.split("/").map(encodeURIComponent).join("/")}`, g.group)],
    ["Streams", (g) => (g.error ? h("span", { class: "why" }, g.error) : g.gone ? "deleted" : g.streams.map((s) => h("div", {}, toStream(s))))],
    ["Readers", (g) => f.count(g.readers), "num"],
    ["Unassigned", (g) => (g.unassigned ? badge("warn", f.count(g.unassigned)) : f.count(g.unassigned)), "num"],
    ["Unread", (g) => f.bytes(g.unread_bytes), "num"],
  ], rows, "No reader group has this name."),
});

function reset(call, name) {
  const place = placeField("Go on at", [["checkpoint", "The last checkpoint"], ["head", "The beginning"], ["tail", "The end: skip what is unread"], ...PAST], "checkpoint",
    "Of a time: at the last recorded position before it. Several cuts, one for each stream, are separated by spaces.");
  dialog(`Reset ${name}`, [
    h("p", {}, "The group begins a new generation there. Its readers fail, and have to join again."), place.node,
  ], "Reset", async () => {
    const made = await api.send("POST", `${call}/reset`, { to: place.value() });
    toast(`${name} begins generation ${made.generation}`);
  }, "danger");
}

const offline = (call, name, reader) => confirm(`Declare ${reader} of ${name} lost`,
  "Others go on with its segments at its last checkpoint, and read again what it has read since. If it still runs, it fails.", "Declare it lost", async () => {
    const made = await api.send("POST", `${call}/offline`, { reader });
    toast(made.was_online ? `${reader} is offline` : `${reader} was not in the group`);
  });

const remove = (call, name, scope) => confirm(`Delete ${name}`, "The group and its position are deleted, for good. Its readers fail. The streams stay as they are.", "Delete", async () => {
  await api.send("DELETE", call, { confirm: name });
  toast(`Reader group ${name} deleted`);
  go(`#/groups?scope=${encodeURIComponent(scope)}`);
}, name);

export async function group({ root, parts, writes, user, onEnd }) {
  const call = api.path("groups", ...parts);
  const name = parts.join("/");
  const body = h("div", {});
  const figures = h("div", { class: "figures" });
  const actions = h("div", { class: "actions" });
  let before = null;
  let lag = null; // by stream, in ms; null: not known yet
  const draw = (found) => {
    const now = performance.now();
    const trend = before && now > before.at ? ((found.unread_bytes - before.unread) / (now - before.at)) * 1000 : null;
    before = { at: now, unread: found.unread_bytes };
    fill(figures,
      figure("Unread", f.bytes(found.unread_bytes), trend === null ? "" : `${trend > 0 ? "+" : ""}${f.rate(trend)}`),
      figure("Behind", behind(lag && Object.values(lag)), "in time"),
      figure("Readers", f.count(found.readers.length)), figure("Segments", f.count(found.segments.length)),
      figure("Generation", f.count(found.generation), found.at_end ? "at the end" : ""));
    fill(body,
      !found.readers.length && notice("warn", "Nobody reads: the group has no reader."),
      h("div", { class: "grid" },
        panel("Readers", table("Readers", [
          ["Reader", (r) => r.reader], ["Segments", (r) => f.count(r.segments), "num"], ["Unread", (r) => f.bytes(r.unread_bytes), "num"],
          writes && ["Change", (r) => h("button", { type: "button", class: "small danger-line", "aria-label": `Declare reader ${r.reader} lost`, onclick: () => offline(call, name, r.reader) }, "Set offline"), "num"],
        ].filter(Boolean), found.readers, "No reader is in the group.")),
        panel("Streams", table("Streams", [
          ["Stream", (s) => toStream(s)], ["Behind", (s) => behind(lag && (s in lag ? [lag[s]] : [])), "num"],
        ], found.streams),
        h("p", { class: "muted note" }, found.checkpoint_ms ? `Automatic checkpoint every ${f.duration(found.checkpoint_ms)}. ` : "No automatic checkpoints. ", found.checkpoints.length ? `${found.checkpoints.length} pending.` : ""))),
      panel("Segments", table("Segments", [
        ["Stream", (s) => s.stream], ["Segment", (s) => h("code", {}, s.segment)], ["State", (s) => state(s.state)], ["Reader", (s) => s.reader ?? "–"],
        ["Position", (s) => f.count(s.position), "num"], ["End", (s) => f.count(s.end), "num"], ["Unread", (s) => f.bytes(s.unread_bytes), "num"],
      ], found.segments, "Nothing is left to read.")));
  };
  const first = await api.get(call);
  fill(actions,
    copyButton("Copy as command", () => [
      ["The group", shell.command("sarit", "group", "info", name)], ["Its readers and their segments", shell.command("sarit", "group", "readers", name)],
      ["The same as JSON, over HTTP", shell.curl(location.origin, `/v1/scopes/${parts[0]}/readergroups/${parts[1]}`, user)],
    ]),
    writes && h("button", { type: "button", class: "danger-line", onclick: () => reset(call, name) }, "Reset"),
    writes && first.may_delete && h("button", { type: "button", class: "danger-line", onclick: () => remove(call, name, parts[0]) }, "Delete"));
  fill(root, h("nav", { class: "crumbs", "aria-label": "Breadcrumb" }, link("#/groups", "Reader groups"), " / ", parts[0]),
    h("div", { class: "head" }, h("h1", {}, parts[1]), actions), figures, body);
  let found = first;
  draw(found);
  let going = true;
  // What is not seen costs the node nothing; what the keyboard is in is not drawn again.
  const seen = () => !document.hidden && !body.contains(document.activeElement) && !document.querySelector("dialog[open]");
  async function repeat(work, ms) {
    while (going) {
      if (seen()) { try { await work(); } catch (error) { if (going) fill(body, failure(error)); } }
      await new Promise((done) => { setTimeout(done, ms); });
    }
  }
  const readLag = async () => {
    const answer = await api.get(`${call}/lag`);
    lag = Object.fromEntries(answer.streams.map((one) => [one.stream, one.behind_ms]));
    if (going) draw(found);
  };
  repeat(readLag, LAG_INTERVAL_MS);
  setTimeout(() => repeat(async () => { found = await api.get(call); if (going) draw(found); }, INTERVAL_MS), INTERVAL_MS);
  onEnd(() => { going = false; });
}

/** The longest of several lags: [] nothing is unread; null: not known yet; one that is null: no record reaches so far. */
function behind(found) {
  if (!found) return "–";
  if (!found.length) return "0 s";
  if (found.includes(null)) return "unknown";
  return `≈ ${f.duration(Math.max(...found))}`;
}
