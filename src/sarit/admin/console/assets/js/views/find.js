// Search by the index of a stream: hits with what was found marked, how many there are over time, and by values.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { badge, bar, copyButton, failure, link, notice, panel, select } from "../parts.js";
import * as shell from "../shell.js";
import { eventRow } from "./event.js";

const RANGES = [["", "Any time"], ["-15 minutes", "Last 15 minutes"], ["-1 hour", "Last hour"], ["-1 day", "Last day"], ["-7 days", "Last 7 days"]];
const SORTS = [["newest", "Newest first"], ["oldest", "Oldest first"], ["score", "Best first"]];
const MAX_BARS = 200;
const MAX_LETTERS = 80;
const REFRESH = [["0", "No refresh"], ["5", "Every 5 s"], ["30", "Every 30 s"]];

export async function find({ root, call, info, params, hash, onEnd }) {
  const name = `${info.scope}/${info.stream}`;
  let asked = 0; // answers of earlier questions are dropped
  let timer = 0;
  let wanted = null; // the question whose hits are shown: further pages are of it, whatever the form says by now
  let next = "";
  let pages = 0;
  let since = ""; // where its range begins: all pages of "the last hour" are of the same hour
  let whole = ""; // its query with the chosen values
  let span = null; // a bar of the histogram that was chosen: [from, until] in ms
  let chosen = []; // [field, value] of facets that were chosen
  let focus = ""; // what gets the focus once the answer is drawn, since what had it is drawn again
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
  const chips = h("div", { class: "filters chips" });
  const said = h("p", { class: "num result", role: "status" });
  const waits = h("p", { class: "muted", hidden: true }, "The refresh waits while an event is open, or more than one page is shown.");
  const hits = h("ol", { class: "events times", "aria-label": "Events that were found" });
  const more = h("button", { type: "button", hidden: true, onclick: () => ask(next) }, "Show more");
  const copied = copyButton("Copy as command", () => [["The same by the command line", commandOf(name, whole || text.value || "*", range.value)]]);
  const form = h("form", { class: "search-form find", onsubmit: (event) => { event.preventDefault(); begin(); } },
    h("div", { class: "filters" }, text, range, sort, refresh), chips,
    h("div", { class: "actions left" }, h("button", { type: "submit", class: "primary" }, "Search"), copied));
  const scan = link(`${hash}/search?scan=1`, "Search by reading the stream");
  const help = h("p", { class: "muted help-line", id: "find-help" }, "Words, \"phrases\", begin*, field:value, field:[1 TO 5], AND, OR, NOT. ", scan, " finds what the index does not have yet.");
  fill(root, panel(null, form, help, state(info.search), problem), chart, facets, panel(null, said, waits, hits, h("div", { class: "actions left" }, more)));

  function begin() {
    wanted = { q: text.value.trim() || "*", chosen: chosen.length ? JSON.stringify(chosen) : "", sort: sort.value, from: span ? at(span[0]) : range.value, until: span ? at(span[1]) : "" };
    fill(chips, chosen.map(chip));
    // The text alone: a scan has no values to choose.
    scan.setAttribute("href", `${hash}/search${api.query({ scan: "1", kind: "query", text: text.value.trim() })}`);
    ask("");
    again();
  }
  function again() {
    clearInterval(timer);
    const seconds = Number(refresh.value);
    if (seconds) timer = setInterval(onceMore, seconds * 1000);
    else waits.hidden = true;
  }
  function onceMore() {
    if (document.hidden) return; // what nobody sees costs the node nothing
    waits.hidden = pages < 2 && !hits.querySelector("details[open]");
    if (waits.hidden) ask("", true); // what somebody reads stays
  }
  async function ask(page, quiet = false) {
    const mine = asked += 1;
    if (!quiet) said.textContent = "Searching…";
    try {
      const found = await api.get(`${call}/find`, page ? { ...wanted, from: since, page } : wanted);
      if (mine === asked) draw(found, page);
    } catch (error) {
      if (mine !== asked) return;
      said.textContent = "";
      // The hits of the question before are not those of this one.
      if (!quiet && !page) clear();
      fill(problem, failure(error));
    }
  }
  function clear() {
    whole = next = "";
    more.hidden = true;
    for (const each of [facets, hits]) fill(each);
    fill(chart, span && panel("Over time", allTimes()));
  }
  function draw(found, page) {
    fill(problem);
    next = found.page;
    more.hidden = !next;
    pages = page ? pages + 1 : 1;
    const rows = found.hits.map((hit) => (hit.gone ? h("li", { class: "muted" }, `${hit.segment}:${hit.offset} is not there any more`) : row(hit, found.marks)));
    if (page) hits.append(...rows); else fill(hits, rows);
    said.textContent = `${f.count(found.total)} found, ${f.count(hits.children.length)} shown. ${upTo(found)}`;
    if (page) return;
    whole = found.query;
    since = found.from_ms === null ? "" : at(found.from_ms);
    histogram(found);
    fill(facets, Object.entries(found.facets).filter(([, values]) => values.length).map(([path, values]) => facet(path, values)));
    if (focus) root.querySelector(focus)?.focus({ preventScroll: true });
    focus = "";
  }
  function row(hit, marks) {
    const item = eventRow(hit, { call, name, marks });
    item.querySelector(".where").textContent = f.moment(hit.time_ms);
    return item;
  }
  function histogram(found) {
    const buckets = found.buckets;
    const first = buckets.length ? buckets[0][0] : 0;
    const count = buckets.length ? Math.round((buckets.at(-1)[0] - first) / found.bucket_ms) + 1 : 0;
    // Far more bars than were asked for: an event of quite another time has come since the width was chosen.
    if (!count || count > MAX_BARS) { fill(chart, span && panel("Over time", allTimes())); return; }
    const most = Math.max(...buckets.map(([, events]) => events));
    const known = new Map(buckets);
    const columns = Array.from({ length: count }, (_, place) => {
      const from = first + place * found.bucket_ms;
      const events = known.get(from) ?? 0;
      const fillings = h("span", {});
      fillings.style.height = `${Math.max(events ? 3 : 0, (events / most) * 100)}%`;
      return h("button", { type: "button", disabled: !events, title: `${f.moment(from)}: ${f.count(events)}`, "aria-label": `${f.moment(from)}: ${f.count(events)} events`, onclick: () => { span = [from, from + found.bucket_ms]; focus = ".all-times"; begin(); } }, fillings);
    });
    fill(chart, panel(`Over time, ${f.duration(found.bucket_ms)} a bar`,
      h("div", { class: "histogram" }, columns),
      h("div", { class: "bar-head" }, h("span", {}, f.moment(first)), span && allTimes(), count > 1 && h("span", {}, f.moment(buckets.at(-1)[0])))));
  }
  function allTimes() {
    return h("button", { type: "button", class: "small all-times", onclick: () => { span = null; focus = ".histogram button:enabled"; begin(); } }, "All times");
  }
  function facet(path, values) {
    const most = Math.max(...values.map(([, events]) => events));
    return panel(path, values.map(([value, events]) => h("div", { class: "facet" },
      bar(shown(value), events, most, f.count(events), [], true),
      h("button", { type: "button", class: "small", "aria-label": `Only ${path} ${shown(value)}`, disabled: isChosen(path, value), onclick: () => { chosen = [...chosen, [path, value]]; focus = ".chips button:last-child"; begin(); } }, "Only"))));
  }
  function isChosen(path, value) { return chosen.some(([field, one]) => field === path && one === value); }
  function chip([path, value]) {
    return h("button", { type: "button", class: "small chip", "aria-label": `Remove ${path} ${shown(value)}`, onclick: () => {
      chosen = chosen.filter(([field, one]) => field !== path || one !== value);
      focus = "input[type=search]";
      begin();
    } }, h("span", {}, `${path}: ${shown(value)}`), " ×");
  }
  onEnd(() => { clearInterval(timer); asked += 1; });
  if (params.text || !info.search.problem) begin();
  if (!params.text && !matchMedia("(pointer: coarse)").matches) text.focus({ preventScroll: true });
}

/** A value of a facet for people: with quotes where spaces or line ends would not be seen. */
function shown(value) {
  const letters = [...value];
  const part = letters.length > MAX_LETTERS ? `${letters.slice(0, MAX_LETTERS).join("")}…` : value;
  return /^$|^\s|\s$|\s\s|[\t\n\r]/.test(part) ? JSON.stringify(part) : part;
}

/** A time in ms as the node takes it from a page: others would be times as people write them. */
const at = (ms) => `@${ms}`;

/** The same by the command line; of a query that no line can have, the whole stream. */
const commandOf = (name, query, from) => (shell.plain(query)
  ? shell.command("sarit", "search", name, ...(from ? [shell.option("from", from)] : []), "--", query) : shell.readCommand(name));

const upTo = (found) => (found.committed_ms ? `The index has what was there at ${f.moment(found.committed_ms)}.` : "The index has nothing yet.");

/** What keeps the index from being up to date, if anything does. */
function state(found) {
  if (found.problem) return notice("bad", found.problem);
  if (found.lag_bytes) return h("p", { class: "muted" }, badge("info", found.state), `${f.bytes(found.lag_bytes)} are not indexed yet.`);
  return null;
}
