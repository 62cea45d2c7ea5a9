// Events: a live tail with a filter, and history from a place on.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { copyButton, failure, panel, select } from "../parts.js";
import * as shell from "../shell.js";
import { eventRow } from "./event.js";

const MAX_SHOWN = 300; // older events leave the page

export async function tail({ root, call, info, schemas, onEnd }) {
  let close = null;
  let last = ""; // the cut after what was shown, from which a pause goes on
  let kind = "auto";
  const name = `${info.scope}/${info.stream}`;
  const counts = { shown: 0, scanned: 0, bytes: 0 };
  const start = select([["tail", "From now on"], ["head", "From the beginning"], ["-10 minutes", "The last 10 minutes"], ["-1 hour", "The last hour"]], info.sealed ? "head" : "tail", () => restart());
  const filter = h("input", { type: "search", placeholder: "Filter: events that contain…", maxlength: "200", spellcheck: "false", "aria-label": "Filter" });
  // What the header of each event names; asked for, since it costs the node time.
  const header = info.properties?.["schema-header"] ?? "none";
  const named = header !== "none" && schemas;
  let decode = 0;
  const bySchema = h("input", { type: "checkbox", id: "by-schema", onchange: (event) => { decode = event.target.checked ? 1 : 0; restart(); } });
  const form = select([["auto", "Decode"], ["text", "As text"], ["hex", "As bytes"]], kind, (value) => { kind = value; redraw(); });
  start.setAttribute("aria-label", "Where to begin");
  form.setAttribute("aria-label", "How payloads are shown");
  const pause = h("button", { type: "button", onclick: () => (close ? stop() : follow(last)) });
  const clear = h("button", { type: "button", onclick: () => { fill(events); counts.shown = 0; say(); } }, "Clear");
  const copied = copyButton("Copy as command", () => [
    ["Follow the stream", shell.readCommand(name, shell.option("from", start.value), "--follow")],
    last && ["Go on behind what is shown", shell.readCommand(name, shell.option("from", last), "--follow")],
    named && ["By their schemas", shell.readCommand(name, shell.option("from", start.value), "--follow", "--decode", "--on-error=skip")],
    ["Envelopes with key, time and headers", shell.readCommand(name, shell.option("from", start.value), "--follow", "--envelope")],
  ]);
  const said = h("p", { class: "muted num", role: "status" });
  const problem = h("div", {});
  const events = h("ol", { class: "events", "aria-label": "Events, the newest first" });
  fill(root, panel(null, h("div", { class: "filters" }, start, filter, form, named && h("label", { class: "check", for: "by-schema" }, bySchema, " By schema"), pause, clear, copied), said, problem, events));

  let note = "";
  function say() {
    said.textContent = `${close ? "Live" : "Paused"}: ${f.count(counts.shown)} shown of ${f.count(counts.scanned)} events, ${f.bytes(counts.bytes)}${note ? `. ${note}` : ""}`;
    fill(pause, close ? "Pause" : "Go on");
  }
  function stop() { close?.(); close = null; say(); }
  function restart() {
    stop();
    fill(events);
    Object.assign(counts, { shown: 0, scanned: 0, bytes: 0 });
    note = "";
    last = "";
    follow("");
  }
  function follow(from) {
    fill(problem);
    close = api.live(`${call}/tail/live`, { from: from || start.value, filter: filter.value, decode }, {
      events: (found, id) => { last = id || last; add(found); },
      skipped: (found) => { note = `Skipped ${found.bytes === null ? "some events" : f.bytes(found.bytes)}: the stream is faster than this page`; say(); },
      end: (found) => { note = found.reason; stop(); },
    }, (state, text) => {
      if (state === "ended" && close) { close = null; if (text) fill(problem, failure(new Error(text))); say(); }
    });
    say();
  }
  function add(found) {
    counts.scanned += found.scanned;
    counts.bytes += found.bytes;
    counts.shown += found.events.length;
    events.prepend(...found.events.map((event) => eventRow(event, { call, name, kind })).reverse());
    while (events.children.length > MAX_SHOWN) events.lastChild.remove();
    say();
  }
  function redraw() {
    const all = [...events.children].map((item) => item.event);
    fill(events, all.map((event) => eventRow(event, { call, name, kind })));
  }
  let timer = 0;
  filter.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(restart, 300); });
  onEnd(() => { clearTimeout(timer); stop(); });
  follow("");
}
