// An event written by hand: payload, key, and what an envelope carries.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as f from "../format.js";
import { commands, dialog, field, select, toast } from "../parts.js";
import * as shell from "../shell.js";

const text = (props = {}) => h("input", { type: "text", autocomplete: "off", spellcheck: "false", ...props });

/** A list of headers; `values()` leaves out rows without a name and a value. */
function headerRows() {
  const rows = h("div", { class: "header-rows" });
  let count = 0;
  const add = (focus) => {
    count += 1;
    const name = text({ placeholder: "Name", "aria-label": `Name of header ${count}` });
    const value = text({ placeholder: "Value", "aria-label": `Value of header ${count}` });
    const row = h("div", { class: "header-row" }, name, value,
      h("button", { type: "button", "aria-label": `Remove header ${count}`, onclick: () => { row.remove(); more.focus(); } }, "×"));
    row.read = () => ({ name: name.value, value: value.value });
    rows.append(row);
    if (focus) name.focus();
  };
  const more = h("button", { type: "button", class: "ghost", onclick: () => add(true) }, "Add a header");
  return {
    node: h("div", { class: "field", role: "group", "aria-label": "Headers" }, h("span", { class: "group-name" }, "Headers"), rows, h("div", {}, more),
      h("span", { class: "help" }, "With a header or a time the event is written as an envelope, which carries its key, too.")),
    values: () => [...rows.children].map((row) => row.read()).filter(({ name, value }) => name || value),
  };
}

export function writeEvent(call, name) {
  const key = text();
  const payload = h("textarea", { rows: "7", spellcheck: "false" });
  const kind = select([["text", "Text"], ["json", "JSON, checked and on one line"], ["base64", "Bytes in base64"]], "text");
  const headers = headerRows();
  const time = text({ placeholder: "now, or 2026-01-31T12:00:00Z" });
  const body = () => {
    const made = { key: key.value };
    if (kind.value === "base64") made.base64 = payload.value.replace(/\s+/g, "");
    else if (kind.value === "json") { JSON.parse(payload.value); made.text = f.compact(payload.value); }
    else made.text = payload.value;
    const given = headers.values();
    if (given.length) made.headers = given;
    if (time.value.trim()) made.event_time = time.value.trim();
    return made;
  };
  const said = h("div", {});
  const show = () => {
    fill(said);
    try { commands("Copy as command", [["Write this event", shell.writeCommand(name, body())]]); } catch (error) { fill(said, h("p", { class: "why", role: "alert" }, error.message)); }
  };
  dialog(`Write an event to ${name}`, [
    field("Payload", payload), field("Payload is", kind),
    field("Routing key", key, "Events of one key keep their order. Without one, any segment gets it."),
    headers.node, field("Event time", time), said,
    h("div", { class: "actions left" }, h("button", { type: "button", class: "ghost", onclick: show }, "Copy as command")),
  ], "Write", async () => {
    const made = await api.send("POST", `${call}/events`, body());
    toast(`Written: ${f.bytes(made.bytes)}, durable`);
  });
  payload.focus();
}
