// Search: a bounded scan between two places, with what was found so far and how far it came.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { bar, copyButton, failure, panel, select } from "../parts.js";
import * as shell from "../shell.js";
import { eventRow } from "./event.js";
import { PAST, placeInput } from "./places.js";

const MAX_SHOWN = 1000;
const ENDED = {
  end: "Everything in the range was searched",
  bytes: "It has read as much as one search may",
  seconds: "It has taken as long as one search may",
  hits: "It has found as many as one search shows",
  left: "Stopped",
};
const HINTS = {
  text: ["Text", "Upper and lower case of a–z are the same."],
  pattern: ["Regular expression", "As RE2 has them, matched against bytes: (?i) ignores case."],
  field: ["Value", "A number, true, null, or a text. Places in arrays count from 0: items.0.sku"],
  query: ["Query", "Words, \"a phrase\", time*, level:ERROR, took:>=5, OR, NOT and parentheses, as of sarit search."],
};

export async function search({ root, call, info, params, onEnd }) {
  const name = `${info.scope}/${info.stream}`;
  let close = null;
  let next = ""; // the cut from which it can go on
  let until = "";
  let ended = "";
  const total = { bytes: 0, whole: 0, before: 0, events: 0, eventsBefore: 0, partly: 0, partlyBefore: 0, hits: 0 };
  const kind = select([["text", "Contains"], ["pattern", "Matches"], ["field", "JSON field is"], ["query", "Query"]], params.kind ?? "text", () => hint());
  const path = h("input", { type: "text", value: params.path ?? "", maxlength: "200", autocomplete: "off", spellcheck: "false", placeholder: "customer.id", "aria-label": "Field, with dots" });
  const wanted = h("input", { type: "search", value: params.text ?? "", maxlength: "200", spellcheck: "false", "aria-describedby": "search-hint" });
  const from = placeInput("From", [["head", "The beginning"], ...PAST], params.from ?? "head");
  const to = placeInput("Until", [["tail", "Now"], ...PAST], "tail");
  const help = h("p", { class: "muted help-line", id: "search-hint" });
  const go = h("button", { type: "submit", class: "primary" }, "Search");
  const stop = h("button", { type: "button", hidden: true, onclick: () => finish("left") }, "Stop");
  const more = h("button", { type: "button", hidden: true, onclick: () => follow({ from: next, until }) }, "Go on");
  const copied = copyButton("Copy as command", () => [
    ["Read the range, and search in what is printed", searchCommand(name, kind.value, path.value, wanted.value, safely(from))],
    next && ["Read from where this search has come to", shell.readCommand(name, shell.option("from", next))],
  ]);
  const progress = h("div", {});
  const said = h("p", { class: "num result", role: "status" });
  const problem = h("div", {});
  const hits = h("ol", { class: "events", "aria-label": "Events that were found, in the order of the search" });
  kind.setAttribute("aria-label", "What to look for");
  const form = h("form", { class: "search-form", onsubmit: (event) => { event.preventDefault(); begin(); } },
    h("div", { class: "filters" }, kind, path, wanted),
    h("div", { class: "filters" }, h("label", { class: "range" }, "From ", from.nodes), h("label", { class: "range" }, "Until ", to.nodes), h("div", { class: "actions left" }, go, stop, more, copied)));
  fill(root, panel(null, form, help, progress, said, problem, hits));

  function hint() {
    const [label, text] = HINTS[kind.value];
    wanted.setAttribute("aria-label", label);
    wanted.placeholder = label;
    path.hidden = kind.value !== "field";
    wanted.maxLength = kind.value === "query" ? 4096 : 200;
    help.textContent = text;
  }
  function begin() {
    finish("");
    fill(hits);
    fill(problem);
    Object.assign(total, { bytes: 0, whole: 0, before: 0, events: 0, eventsBefore: 0, partly: 0, partlyBefore: 0, hits: 0 });
    try { follow({ from: from.value(), until: to.value() }); } catch (error) { fill(problem, failure(error)); }
  }
  function follow(range) {
    fill(problem);
    ended = "";
    Object.assign(total, { before: total.bytes, eventsBefore: total.events, partlyBefore: total.partly });
    close = api.live(`${call}/search/live`, { kind: kind.value, text: wanted.value, path: kind.value === "field" ? path.value : "", ...range }, {
      begun: (found) => { until = found.until; total.whole = total.before + found.bytes; draw(); },
      step: (found, id) => {
        next = id;
        Object.assign(total, { bytes: total.before + found.bytes, events: total.eventsBefore + found.scanned, partly: total.partlyBefore + found.partly });
        total.hits += found.events.length;
        hits.append(...found.events.slice(0, Math.max(0, MAX_SHOWN - hits.children.length)).map((event) => eventRow(event, { call, name })));
        if (found.ended) finish(found.ended); else draw();
      },
    }, (state, text) => {
      // A browser would begin again by itself, and count twice.
      if (state === "lost") { finish("left"); fill(problem, failure(new Error("the connection is lost: go on when the node answers"))); }
      if (state === "ended" && close) { finish("left"); if (text) fill(problem, failure(new Error(text))); }
    });
    draw();
  }
  function finish(why) {
    close?.();
    close = null;
    ended = why;
    draw();
  }
  function draw() {
    stop.hidden = !close;
    more.hidden = Boolean(close) || !next || !ended || ended === "end";
    go.disabled = Boolean(close);
    const share = total.whole ? Math.min(1, total.bytes / total.whole) : ended === "end" ? 1 : 0;
    fill(progress, (close || ended) && bar("Searched", share, 1, `${Math.floor(share * 100)} %, ${f.bytes(total.bytes)} of ${f.bytes(Math.max(total.whole, total.bytes))}`, [], true));
    const found = `${f.count(total.hits)} found in ${f.count(total.events)} events`;
    const shown = total.hits > MAX_SHOWN ? `, the first ${f.count(MAX_SHOWN)} are shown` : "";
    const partly = total.partly ? `. ${f.count(total.partly)} long events were matched in part only` : "";
    const text = close ? "Searching…" : ended ? `${ENDED[ended]}: ${found}${shown}${partly}.` : "";
    // Screen readers hear of the end, not of each step.
    if (said.textContent !== text) said.textContent = text;
  }
  onEnd(() => { close?.(); close = null; });
  hint();
  if (!params.text && !matchMedia("(pointer: coarse)").matches) wanted.focus({ preventScroll: true });
}

const safely = (place) => { try { return place.value(); } catch { return "head"; } };

/** The same by the command line, on the machine where it runs: it reads the range and filters its output. */
function searchCommand(name, kind, path, text, start) {
  const read = shell.readCommand(name, shell.option("from", start));
  if (kind === "query" && shell.plain(text)) return shell.command("sarit", "search", name, shell.option("from", start), "--", text);
  if (!shell.plain(text)) return read;
  if (kind === "field") return `${shell.readCommand(name, shell.option("from", start), "--format=json")} | ${shell.command("grep", "-F", "--", text)}`;
  return `${read} | ${kind === "text" ? shell.command("grep", "-i", "-F", "--", text) : shell.command("grep", "-E", "--", text)}`;
}
