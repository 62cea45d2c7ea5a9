// Events: a live tail with a filter, history page by page, and one event written by hand.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { badge, dialog, failure, field, panel, select, toast } from "../parts.js";

const MAX_SHOWN = 300; // older events leave the page

export async function tail({ root, call, info, onEnd }) {
  let close = null;
  let last = ""; // the cut after what was shown, from which a pause goes on
  let kind = "auto";
  const counts = { shown: 0, scanned: 0, bytes: 0 };
  const start = select([["tail", "From now on"], ["head", "From the beginning"], ["-10 minutes", "The last 10 minutes"], ["-1 hour", "The last hour"]], info.sealed ? "head" : "tail", () => restart());
  const filter = h("input", { type: "search", placeholder: "Filter: events that contain…", maxlength: "200", spellcheck: "false", "aria-label": "Filter" });
  const form = select([["auto", "Decode"], ["text", "As text"], ["hex", "As bytes"]], kind, (value) => { kind = value; redraw(); });
  start.setAttribute("aria-label", "Where to begin");
  form.setAttribute("aria-label", "How payloads are shown");
  const pause = h("button", { type: "button", onclick: () => (close ? stop() : follow(last)) });
  const clear = h("button", { type: "button", onclick: () => { fill(events); counts.shown = 0; say(); } }, "Clear");
  const said = h("p", { class: "muted num", role: "status" });
  const problem = h("div", {});
  const events = h("ol", { class: "events", "aria-label": "Events, the newest first" });
  fill(root, panel(null, h("div", { class: "filters" }, start, filter, form, pause, clear), said, problem, events));

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
    close = api.live(`${call}/tail/live`, { from: from || start.value, filter: filter.value }, {
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
    events.prepend(...found.events.map((event) => row(event, kind)).reverse());
    while (events.children.length > MAX_SHOWN) events.lastChild.remove();
    say();
  }
  function redraw() {
    const all = [...events.children].map((item) => item.event);
    fill(events, all.map((event) => row(event, kind)));
  }
  let timer = 0;
  filter.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(restart, 300); });
  onEnd(() => { clearTimeout(timer); stop(); });
  follow("");
}

function row(event, kind) {
  const shown = f.decode(event.payload, kind);
  const key = event.envelope?.key;
  const details = h("details", {},
    h("summary", {},
      h("code", { class: "where" }, `${event.segment}:${event.offset}`),
      key !== undefined && key !== null && h("span", { class: "key" }, key),
      h("span", { class: "line" }, shown.line.slice(0, 400)),
      h("span", { class: "size num" }, f.bytes(event.size))));
  // The long form is made when it is asked for.
  details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) details.append(long(event, shown)); });
  const item = h("li", {}, details);
  item.event = event;
  return item;
}

function long(event, shown) {
  const parts = [badge("", shown.kind)];
  const e = event.envelope;
  if (e) {
    parts.push(badge("info", "envelope"), e.key !== null && h("span", {}, `key ${e.key}`),
      e.event_time_us !== null && h("span", {}, f.moment(e.event_time_us / 1000)),
      e.headers.map((header) => h("span", {}, h("code", {}, header.name), " ", f.decode(header).line)));
  }
  if (event.envelope_error) parts.push(h("span", { class: "why" }, event.envelope_error));
  if (event.payload.cut) parts.push(h("span", { class: "muted" }, `the first ${f.bytes(f.fromBase64(event.payload.base64).length)} of ${f.bytes(event.payload.bytes)}`));
  return h("div", { class: "event" }, h("div", { class: "event-head" }, parts), h("pre", { tabindex: "0" }, shown.text));
}

export function writeEvent(call) {
  const key = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const payload = h("textarea", { rows: "8", spellcheck: "false" });
  const kind = select([["text", "Text"], ["json", "JSON, checked and on one line"], ["base64", "Bytes in base64"]], "text");
  dialog("Write an event", [
    field("Routing key", key, "Events of one key keep their order. Without one, any segment gets it."), field("Payload", payload), field("Payload is", kind),
  ], "Write", async () => {
    const body = { key: key.value };
    if (kind.value === "base64") body.base64 = payload.value.replace(/\s+/g, "");
    else body.text = kind.value === "json" ? JSON.stringify(JSON.parse(payload.value)) : payload.value;
    const made = await api.send("POST", `${call}/events`, body);
    toast(`Written: ${f.bytes(made.bytes)}, durable`);
  });
  payload.focus();
}
