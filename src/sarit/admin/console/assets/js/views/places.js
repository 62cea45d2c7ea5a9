// A place in a stream: chosen from a list, a time, or a cut.

import { h } from "../dom.js";
import { field, select } from "../parts.js";

/** An input for a place; `choices`: [value, text] of those with a name. `value()` throws when nothing was given. */
export function placeInput(label, choices, chosen) {
  const time = h("input", { type: "datetime-local", step: "1", "aria-label": `${label}: time, in your time zone` });
  const cut = h("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: "The text of a cut", "aria-label": `${label}: cut` });
  const draw = () => { time.hidden = which.value !== "time"; cut.hidden = which.value !== "cut"; };
  const which = select([...choices, ["time", "A time…"], ["cut", "A cut…"]], chosen, draw);
  which.setAttribute("aria-label", label);
  draw();
  return {
    nodes: [which, time, cut],
    value: () => {
      if (which.value === "cut") {
        if (!cut.value.trim()) throw new Error(`${label}: give the text of a cut`);
        return cut.value.trim();
      }
      if (which.value !== "time") return which.value;
      const moment = new Date(time.value);
      if (!time.value || Number.isNaN(moment.getTime())) throw new Error(`${label}: give a day and a time`);
      return moment.toISOString();
    },
  };
}

/** The same as a row of a form. */
export function placeField(label, choices, chosen, help) {
  const input = placeInput(label, choices, chosen);
  const [which, ...others] = input.nodes;
  const row = field(label, which, help);
  row.append(...others);
  return { node: row, value: input.value };
}

export const PAST = [["-10 minutes", "10 minutes ago"], ["-1 hour", "1 hour ago"], ["-1 day", "1 day ago"], ["-7 days", "7 days ago"]];
