// Reader groups: lag and owners.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { badge, failure, figure, link, notice, panel, state, table } from "../parts.js";
import { list } from "./streams.js";

const INTERVAL_MS = 3000;
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

export async function group({ root, parts, onEnd }) {
  const call = api.path("groups", ...parts);
  const body = h("div", {});
  fill(root, h("nav", { class: "crumbs", "aria-label": "Breadcrumb" }, link("#/groups", "Reader groups"), " / ", parts[0]), h("h1", {}, parts[1]), body);
  let before = null;
  const draw = (found) => {
    const now = performance.now();
    const trend = before && now > before.at ? ((found.unread_bytes - before.unread) / (now - before.at)) * 1000 : null;
    before = { at: now, unread: found.unread_bytes };
    fill(body,
      h("div", { class: "figures" },
        figure("Unread", f.bytes(found.unread_bytes), trend === null ? "" : `${trend > 0 ? "+" : ""}${f.rate(trend)}`),
        figure("Readers", f.count(found.readers.length)), figure("Segments", f.count(found.segments.length)),
        figure("Generation", f.count(found.generation), found.at_end ? "at the end" : "")),
      !found.readers.length && notice("warn", "Nobody reads: the group has no reader."),
      h("div", { class: "grid" },
        panel("Readers", table("Readers", [
          ["Reader", (r) => r.reader], ["Segments", (r) => f.count(r.segments), "num"], ["Unread", (r) => f.bytes(r.unread_bytes), "num"],
        ], found.readers, "No reader is in the group.")),
        panel("Streams", h("ul", { class: "plain" }, found.streams.map((name) => h("li", {}, toStream(name)))),
          h("p", { class: "muted" }, found.checkpoint_ms ? `Automatic checkpoint every ${f.duration(found.checkpoint_ms)}. ` : "No automatic checkpoints. ", found.checkpoints.length ? `${found.checkpoints.length} pending.` : ""))),
      panel("Segments", table("Segments", [
        ["Stream", (s) => s.stream], ["Segment", (s) => h("code", {}, s.segment)], ["State", (s) => state(s.state)], ["Reader", (s) => s.reader ?? "–"],
        ["Position", (s) => f.count(s.position), "num"], ["End", (s) => f.count(s.end), "num"], ["Unread", (s) => f.bytes(s.unread_bytes), "num"],
      ], found.segments, "Nothing is left to read.")));
  };
  draw(await api.get(call));
  let going = true;
  const again = async () => {
    if (!going) return;
    // What is not seen costs the node nothing; what the keyboard is in is not drawn again.
    if (!document.hidden && !body.contains(document.activeElement)) {
      try { const found = await api.get(call); if (going) draw(found); } catch (error) { if (going) fill(body, failure(error)); }
    }
    setTimeout(again, INTERVAL_MS);
  };
  setTimeout(again, INTERVAL_MS);
  onEnd(() => { going = false; });
}
