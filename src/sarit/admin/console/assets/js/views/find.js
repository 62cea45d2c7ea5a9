// Search by the index of a stream: hits with what was found marked, how many there are over time, and by values.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { badge, bar, copyButton, failure, link, notice, panel, select } from "../parts.js";
import * as shell from "../shell.js";
import { eventRow } from "./event.js";

const RANGES = [["", "Any time"], ["-15 minutes", "Last 15 minutes"], ["-1 hour", "Last hour"], ["-1 day", "Last day"], ["-7 days", "Last 7 days"]];
const SORTS = [["newest", "Newest first"], ["oldest", "Oldest first"], ["score", "Best first"]];
const REFRESH = [["0", "No refresh"], ["5", "Every 5 s"], ["30", "Every 30 s"]];

export async function find({ root, call, info, params, hash, onEnd }) {
  const name = `${info.scope}/${info.stream}`;
  let asked = 0; // answers of earlier questions are dropped
  let timer = 0;
  let next = "";
  let span = null; // a bar of the histogram that was chosen: [from, until] in ms
  const text = h("input", { type: "search", value: params.text ?? "", maxlength: "4096", spellcheck: "false", placeholder: "error \"timed out\" level:warn ms:>=100", "aria-label": "Query", "aria-describedby": "find-help" });
  const range = select(RANGES, params.from ?? "", () => { span = null; begin(); });
  const sort = select(SORTS, "newest", () => begin());
  const refresh = select(REFRESH, "0", () => again());
  range.setAttribute("aria-label", "Time");
  sort.setAttribute("aria-label", "Order");
  refresh.setAttribute("aria-label", "Refresh");
  const problem = h("div", {});
  const chart = h("div", {});
  const facets = h("div", { class: "grid" });
  const said = h("p", { class: "num result", role: "status" });
  const hits = h("ol", { class: "events", "aria-label": "Events that were found" });
  const more = h("button", { type: "button", hidden: true, onclick: () => ask(next) }, "Show more");
  const copied = copyButton("Copy as command", () => [["The same by the command line", shell.command("sarit", "search", name, text.value || "*", ...(range.value ? [shell.option("from", range.value)] : []))]]);
  const form = h("form", { class: "search-form", onsubmit: (event) => { event.preventDefault(); begin(); } },
    h("div", { class: "filters" }, text, range, sort, refresh),
    h("div", { class: "actions left" }, h("button", { type: "submit", class: "primary" }, "Search"), copied));
  const help = h("p", { class: "muted help-line", id: "find-help" }, "Words, \"phrases\", begin*, field:value, field:[1 TO 5], AND, OR, NOT. ", link(`${hash}/search?scan=1`, "Search by reading the stream"), " finds what the index does not have yet.");
  fill(root, panel(null, form, help, state(info.search), problem), chart, facets, panel(null, said, hits, h("div", { class: "actions left" }, more)));

  function begin() { next = ""; ask(""); again(); }
  function again() {
    clearInterval(timer);
    const seconds = Number(refresh.value);
    // What nobody sees costs the node nothing.
    if (seconds) timer = setInterval(() => { if (!document.hidden) ask("", true); }, seconds * 1000);
  }
  async function ask(page, quiet = false) {
    const mine = asked += 1;
    if (!quiet) said.textContent = "Searching…";
    const wanted = { q: text.value.trim() || "*", sort: sort.value, page, from: span ? span[0] : range.value, until: span ? span[1] : "" };
    try {
      const found = await api.get(`${call}/find`, wanted);
      if (mine === asked) draw(found, page);
    } catch (error) {
      if (mine !== asked) return;
      said.textContent = "";
      fill(problem, failure(error));
    }
  }
  function draw(found, page) {
    fill(problem);
    next = found.page;
    more.hidden = !next;
    const rows = found.hits.map((hit) => (hit.gone ? h("li", { class: "muted" }, `${hit.segment}:${hit.offset} is not there any more`) : row(hit, found.marks)));
    if (page) hits.append(...rows); else fill(hits, rows);
    said.textContent = `${f.count(found.total)} found, ${f.count(hits.children.length)} shown. ${upTo(found)}`;
    if (page) return;
    histogram(found);
    fill(facets, Object.entries(found.facets).filter(([, values]) => values.length).map(([path, values]) => facet(path, values)));
  }
  function row(hit, marks) {
    const item = eventRow(hit, { call, name, marks });
    item.querySelector(".where").textContent = f.moment(hit.time_ms);
    return item;
  }
  function histogram(found) {
    const buckets = found.buckets;
    if (!buckets.length) { fill(chart); return; }
    const most = Math.max(...buckets.map(([, events]) => events));
    const first = buckets[0][0];
    const count = Math.round((buckets.at(-1)[0] - first) / found.bucket_ms) + 1;
    const known = new Map(buckets);
    const columns = Array.from({ length: count }, (_, at) => {
      const from = first + at * found.bucket_ms;
      const events = known.get(from) ?? 0;
      const fillings = h("span", {});
      fillings.style.height = `${Math.max(events ? 3 : 0, (events / most) * 100)}%`;
      return h("button", { type: "button", title: `${f.moment(from)}: ${f.count(events)}`, "aria-label": `${f.moment(from)}: ${f.count(events)} events`, onclick: () => { span = [from, from + found.bucket_ms]; begin(); } }, fillings);
    });
    fill(chart, panel(`Over time, ${f.duration(found.bucket_ms)} a bar`,
      h("div", { class: "histogram" }, columns),
      h("div", { class: "bar-head" }, h("span", {}, f.moment(first)), span && h("button", { type: "button", class: "small", onclick: () => { span = null; begin(); } }, "All times"), h("span", {}, f.moment(buckets.at(-1)[0])))));
  }
  function facet(path, values) {
    const most = Math.max(...values.map(([, events]) => events));
    return panel(path, values.map(([value, events]) => h("div", { class: "facet" },
      bar(value.slice(0, 80), events, most, f.count(events), [], true),
      h("button", { type: "button", class: "small", "aria-label": `Only ${path} ${value}`, onclick: () => { text.value = `${text.value.trim()} ${path}:${quoted(value)}`.trim(); begin(); } }, "Only"))));
  }
  onEnd(() => { clearInterval(timer); asked += 1; });
  if (params.text || !info.search.problem) begin();
  if (!params.text && !matchMedia("(pointer: coarse)").matches) text.focus({ preventScroll: true });
}

const quoted = (value) => `"${value.replaceAll("\\", "\\\\").replaceAll("\"", "\\\"")}"`;

const upTo = (found) => (found.committed_ms ? `The index has what was there at ${f.moment(found.committed_ms)}.` : "The index has nothing yet.");

/** What keeps the index from being up to date, if anything does. */
function state(found) {
  if (found.problem) return notice("bad", found.problem);
  if (found.lag_bytes) return h("p", { class: "muted" }, badge("info", found.state), `${f.bytes(found.lag_bytes)} are not indexed yet.`);
  return null;
}
