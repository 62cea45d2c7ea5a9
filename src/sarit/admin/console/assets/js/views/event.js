// One event in a list: a line, and behind it all that is known of it.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { excerpt } from "../marks.js";
import { badge, commands, failure, marked } from "../parts.js";
import * as shell from "../shell.js";

/** `call`: of the stream; `name`: "scope/stream"; `kind`: how payloads show; `marks`: what a search has found. */
export function eventRow(event, { call, name, kind = "auto", marks = null }) {
  const shown = event.decoded === undefined ? f.decode(event.payload, kind) : { kind: "json", text: f.pretty(event.decoded), line: event.decoded };
  const key = event.envelope?.key;
  const details = h("details", {},
    h("summary", {},
      h("code", { class: "where" }, `${event.segment}:${event.offset}`),
      key !== undefined && key !== null && h("span", { class: "key" }, key),
      h("span", { class: "line" }, marked(excerpt(shown.line, marks, 400), marks)),
      h("span", { class: "size num" }, f.bytes(event.size))));
  // The long form is made when it is asked for.
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(h("div", { class: "event" }, long(event, shown, { call, name, kind, marks })));
  });
  const item = h("li", {}, details);
  item.event = event;
  return item;
}

function long(event, shown, where) {
  const head = h("div", { class: "event-head" });
  const text = h("pre", { tabindex: "0", "aria-label": "Payload" }, marked(shown.text, where.marks));
  const problem = h("div", {});
  const e = event.envelope;
  const cut = event.payload.cut && event.decoded === undefined;
  const whole = h("button", { type: "button", class: "ghost", onclick: async () => {
    whole.disabled = true;
    try {
      const found = await api.get(`${where.call}/event`, { segment: event.segment, offset: event.offset, size: event.size });
      const again = f.decode(found.payload, where.kind);
      fill(text, marked(again.text, where.marks));
      fill(problem, found.payload.cut && h("p", { class: "muted" }, `The first ${f.bytes(f.fromBase64(found.payload.base64).length)} of ${f.bytes(found.payload.bytes)}.`));
      whole.remove();
    } catch (error) { fill(problem, failure(error)); whole.disabled = false; }
  } }, "Show more");
  fill(head,
    badge("", shown.kind), e && badge("info", "envelope"), e && e.key !== null && h("span", {}, "key ", h("code", {}, e.key)),
    e && e.event_time_us !== null && h("span", {}, f.moment(e.event_time_us / 1000)),
    event.schema_id !== undefined && badge("info", `schema ${event.schema_id}`),
    event.not_decoded !== undefined && h("span", { class: "why" }, `not decoded: ${event.not_decoded}`),
    event.envelope_error && h("span", { class: "why" }, event.envelope_error),
    cut && h("span", { class: "muted" }, `the first ${f.bytes(f.fromBase64(event.payload.base64).length)} of ${f.bytes(event.payload.bytes)}`),
    cut && whole,
    !event.payload.cut && h("button", { type: "button", class: "ghost", onclick: () => commands("Copy as command", eventCommands(event, where.name)) }, "Copy as command"));
  const headers = e && e.headers.length > 0 && h("dl", { class: "facts headers" },
    e.headers.map((header) => h("div", {}, h("dt", {}, h("code", {}, header.name)), h("dd", {}, h("code", {}, f.decode(header).line)))));
  return [head, headers, text, problem];
}

/** What writes the same event once more. */
function eventCommands(event, name) {
  const text = f.utf8(event.payload);
  const e = event.envelope;
  const parts = text === null ? { base64: event.payload.base64 } : { text };
  if (e) {
    parts.envelope = true;
    if (e.key !== null) parts.key = e.key;
    // To the microsecond, which a Date does not have.
    if (e.event_time_us !== null) parts.event_time = `${new Date(Math.floor(e.event_time_us / 1000)).toISOString().slice(0, -1)}${String(((e.event_time_us % 1000) + 1000) % 1000).padStart(3, "0")}Z`;
    parts.headers = e.headers.map((header) => {
      const value = f.utf8(header);
      return value === null ? { name: header.name, base64: header.base64 } : { name: header.name, value };
    });
  }
  return [["Write this event again", shell.writeCommand(name, parts)]];
}
