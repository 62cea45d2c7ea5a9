// What a cluster needs, and quotas.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { badge, copyButton, failure, figure, panel, state, table } from "../parts.js";
import * as shell from "../shell.js";

const INTERVAL_MS = 10000;
const NAMES = { zookeeper: "ZooKeeper", bookies: "Bookies", storage: "Long-term storage" };
const none = (text) => h("p", { class: "muted" }, text);

export async function cluster({ root, onEnd }) {
  const body = h("div", {});
  const draw = (found) => fill(body, ...(found.cluster ? parts(found.cluster) : [panel(null, none("This node is no cluster: it needs no ZooKeeper and no bookies, and the overview shows where its data is."))]), quotas(found));
  fill(root, h("div", { class: "head" }, h("h1", {}, "Cluster"), h("div", { class: "actions" }, copyButton("Copy as command", () => [
    ["State of the cluster", shell.command("sarit", "cluster", "status")], ["Quotas", shell.command("sarit", "quota", "list")],
  ]))), body);
  draw(await api.get("/cluster"));
  const timer = setInterval(async () => {
    if (document.hidden || body.contains(document.activeElement)) return;
    try { draw(await api.get("/cluster")); } catch (error) { fill(body, failure(error)); }
  }, INTERVAL_MS);
  onEnd(() => clearInterval(timer));
}

function parts(found) {
  const bookies = found.components.some((one) => one.name === "bookies");
  const total = found.requests.reduce((sum, one) => sum + (one.dollars_a_day ?? 0), 0);
  return [
    h("div", { class: "figures" },
      figure("Served", `${found.served} / ${found.containers}`, "containers"),
      figure("Stores", f.count(found.reports.length), "in the container map"),
      found.requests.length > 0 && figure("Object storage", dollars(total), "a day, as in the last minutes"),
      figure("Lease", f.duration(found.lease_seconds * 1000), "of a store")),
    panel("What the stores need", table("What the stores need", [
      ["Part", (c) => NAMES[c.name] ?? c.name], ["State", (c) => state(c.state)], ["Detail", (c) => c.text],
    ], found.components),
    h("p", { class: "muted note" }, "Coordination: ", h("code", {}, found.address), bookies ? "" : ". The log is in directories, so there are no bookies", ".")),
    h("div", { class: "grid" },
      panel("Reports of stores", table("Reports of stores", [
        ["Store", (s) => s.store], ["Reported", (s) => (s.age === null ? badge("warn", "not since it started") : `${f.duration(s.age * 1000)} ago`), "num"],
      ], found.reports, "No store is in the container map.")),
      panel("Requests to S3", found.requests.length ? table("Requests to object storage", [
        ["Store", (s) => s.store], ["Puts", (s) => count(s.chunk_puts, s.index_puts), "num"], ["Gets", (s) => count(s.chunk_gets, s.index_gets), "num"],
        ["In", (s) => (s.seconds === null ? "–" : f.duration(s.seconds * 1000)), "num"], ["A day", (s) => dollars(s.dollars_a_day), "num"],
      ], found.requests) : none("Nothing of the cluster is on S3."))),
  ];
}

const dollars = (n) => (n === null ? "–" : `$${n.toFixed(2)}`);
const count = (...numbers) => (numbers.includes(null) ? "–" : f.count(numbers.reduce((sum, n) => sum + n, 0)));

const LIMITS = [
  ["bytes_in", "Appended", f.rate, null], ["bytes_out", "Read", f.rate, null], ["streams", "Streams", f.count, "streams"],
  ["segments", "Segments", f.count, "segments"], ["storage_bytes", "Stored", f.bytes, "storage_bytes"], ["connections", "Connections", f.count, null],
];

function quotas({ quotas: found, all_quotas: all }) {
  if (found === null) return panel("Quotas", none("Quotas are shown to who may change everything (prn::/)."));
  const used = LIMITS.filter(([name]) => found.some((one) => one[name]));
  return panel("Quotas", found.length ? table("Quotas", [
    ["Of", (q) => [h("code", {}, q.subject), " ", q.full && badge("bad", "full")]],
    ...used.map(([name, heading, show, use]) => [heading, (q) => (q[name] ? h("span", {}, use && q.used ? `${show(q.used[use])} of ` : "", show(q[name])) : "–"), "num"]),
  ], found) : none("No scope and no user has a quota."),
  found.length < all && none(`The first ${found.length} of ${all} are shown.`));
}
