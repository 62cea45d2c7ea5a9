// The node or the cluster, live.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { bar, facts, figure, notice, panel, state, table } from "../parts.js";

const HISTORY = 150;
const history = { bytes: [], events: [] };

export async function overview({ root, onEnd }) {
  const body = h("div", {});
  const health = h("div", { role: "status", "aria-live": "polite" });
  fill(root, h("h1", {}, "Overview"), health, body);
  let said = "";
  const draw = (found) => {
    const text = `${found.health}: ${found.reasons.join("; ")}`;
    // Screen readers hear of a change, not of each sample.
    if (text !== said) { said = text; fill(health, reasons(found)); }
    fill(body, figures(found), h("div", { class: "grid" }, memory(found), tiers(found)), containers(found), stores(found));
  };
  draw(await api.get("/overview"));
  const onOverview = (event) => draw(event.detail);
  document.addEventListener("overview", onOverview);
  onEnd(() => document.removeEventListener("overview", onOverview));
}

// Samples are taken while any view is open, so that the lines are there when this one is opened.
document.addEventListener("overview", ({ detail }) => {
  for (const [name, values] of Object.entries(history)) {
    values.push(detail.rates[name] ?? 0);
    if (values.length > HISTORY) values.shift();
  }
});

function reasons(found) {
  if (found.health === "ok") return notice("good", "Everything serves.");
  return h("div", { class: `notice ${found.health === "failed" ? "bad" : "warn"}` },
    h("strong", {}, found.health === "failed" ? "Not everything serves." : "Something needs attention."),
    h("ul", {}, found.reasons.map((reason) => h("li", {}, reason))));
}

function figures(found) {
  // Of a node in several processes it is known what does not serve: all others do.
  const serving = found.containers.filter((c) => ["serving", "assigned", "moving", "draining"].includes(c.state)).length;
  const measured = Object.keys(found.rates).length > 0;
  const moving = found.containers.filter((c) => c.moving_to);
  return h("div", { class: "figures" },
    measured && figure("Written", f.rate(found.rates.bytes), spark(history.bytes, "bytes written per second")),
    measured && figure("Events", `${f.count(found.rates.events)}/s`, spark(history.events, "events written per second")),
    figure("Containers", `${serving} / ${found.containers.length}`, moving.length ? `${moving.length} moving` : "serving"),
    figure("Stores", f.count(found.stores.length), Object.values(found.connections).map((n) => `${f.count(n)} connections`).join(", ")),
    figure("Up", f.duration(Date.now() - found.since_ms), `version ${found.version}`));
}

/** A line of the last samples, drawn with SVG. */
function spark(values, label) {
  const NS = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", `0 0 ${HISTORY} 24`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "spark");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${label}, the last ${f.duration(values.length * 2000)}`);
  const most = Math.max(1, ...values);
  const line = document.createElementNS(NS, "polyline");
  line.setAttribute("points", values.map((v, at) => `${HISTORY - values.length + at},${23 - (v / most) * 21}`).join(" "));
  svg.append(line);
  return svg;
}

function memory(found) {
  const m = found.memory;
  if (!m && !found.disks.length) return null;
  return panel("Memory and disks",
    m && bar("Dirty bytes: in memory and log only", m.dirty_bytes, m.control_limit_bytes,
      `${f.bytes(m.dirty_bytes)} of ${f.bytes(m.append_limit_bytes)}`,
      [[m.soft_limit_bytes, `soft limit ${f.bytes(m.soft_limit_bytes)}: flushes hurry`], [m.append_limit_bytes, `append limit ${f.bytes(m.append_limit_bytes)}: appends wait`]]),
    m && bar("Cache", m.cached_bytes, Math.max(m.cache_limit_bytes, 1), `${f.bytes(m.cached_bytes)} of ${f.bytes(m.cache_limit_bytes)}`),
    m?.throttled && notice("warn", "Appends wait for memory."),
    found.disks.map((disk) => facts([disk.directory, disk.free_bytes === null ? "unknown" : `${f.bytes(disk.free_bytes)} free, ${f.bytes(disk.reserve_bytes)} reserved`])));
}

const TIERS = { log: "Tier 1, durable log", chunks: "Tier 2, long-term storage", index: "Index" };

const tiers = (found) => panel("Where data is",
  facts(...found.tiers.map((tier) => [TIERS[tier.name] ?? tier.name, h("code", {}, tier.place)]),
    ...Object.entries(found.addresses).map(([name, address]) => [`Address of the ${name}`, h("code", {}, address)])));

const known = (found, name) => found.containers.some((c) => c[name] !== null);

const containers = (found) => panel("Containers", table("Containers", [
  ["Container", (c) => c.number, "num"],
  ["State", (c) => [state(c.state), c.reason && h("span", { class: "why" }, c.reason)]],
  ["Store", (c) => (c.moving_to ? `${c.store} → ${c.moving_to}` : c.store || "–")],
  known(found, "segments") && ["Segments in memory", (c) => f.count(c.segments), "num"],
  known(found, "dirty_bytes") && ["Dirty", (c) => f.bytes(c.dirty_bytes), "num"],
].filter(Boolean), found.containers));

const stores = (found) => found.stores.length > 1 && panel("Stores", table("Stores", [
  ["Store", (s) => s.name], ["Address", (s) => h("code", {}, s.address)], ["Containers", (s) => f.count(s.containers), "num"],
  ["State", (s) => (s.state ? state(s.state) : "–")],
], found.stores));
