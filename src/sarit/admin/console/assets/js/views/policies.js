// The part of a form that has a stream's policies and tags.

import { h } from "../dom.js";
import { field, select } from "../parts.js";

const DAY = 86400000;
const UNITS = { time: [["3600000", "hours"], [String(DAY), "days"]], size: [["1048576", "MiB"], ["1073741824", "GiB"]] };

const number = (value, min = 0) => h("input", { type: "number", value: String(value), min: String(min), step: "1", inputmode: "numeric" });

function whole(input, name) {
  const value = Number(input.value);
  if (!Number.isSafeInteger(value) || input.value.trim() === "") throw new Error(`${name}: give a whole number`);
  return value;
}

/** Inputs for `config` (as the node sends it); `values()` reads them, and throws what is wrong. */
export function policyFields(config = { scaling: { type: "fixed", segments: 1, target: 0, factor: 2 }, retention: { type: "none", limit: 0, maximum: 0 }, tags: [] }) {
  const { scaling, retention } = config;
  const kind = select([["fixed", "Fixed number of segments"], ["events", "By events per second"], ["bytes", "By KiB per second"]], scaling.type, draw);
  const segments = number(scaling.segments, 1);
  const target = number(scaling.target || 1000, 1);
  const factor = number(scaling.factor || 2, 1);
  const keep = select([["none", "Keep everything"], ["time", "By age"], ["size", "By size"]], retention.type, () => { limitUnits(); draw(); });
  const limit = number(0, 0);
  const unit = select([], "");
  const tags = h("input", { type: "text", value: config.tags.join(", "), autocomplete: "off", spellcheck: "false" });
  const rows = {
    segments: field("Segments", segments, "With a policy by rate: the least number."), target: field("Target rate of a segment", target), factor: field("Split a segment into", factor),
    limit: h("div", { class: "pair" }, field("Keep", limit), field("Unit", unit)),
  };
  function limitUnits() {
    const units = UNITS[keep.value] ?? [];
    unit.replaceChildren(...units.map(([value, text]) => h("option", { value }, text)));
    const same = keep.value === retention.type ? retention.limit : 0;
    const best = [...units].reverse().find(([value]) => same && same % Number(value) === 0) ?? units[0];
    if (best) { unit.value = best[0]; limit.value = String(same ? same / Number(best[0]) : keep.value === "time" ? 24 : 1024); }
  }
  function draw() {
    rows.target.hidden = rows.factor.hidden = kind.value === "fixed";
    rows.limit.hidden = keep.value === "none";
  }
  limitUnits();
  draw();
  return {
    node: h("div", {}, field("Scaling", kind), rows.segments, h("div", { class: "pair" }, rows.target, rows.factor), field("Retention", keep), rows.limit, field("Tags", tags, "Separated by commas.")),
    values: () => ({
      scaling: kind.value === "fixed" ? { type: "fixed", segments: whole(segments, "Segments") }
        : { type: kind.value, segments: whole(segments, "Segments"), target: whole(target, "Target rate"), factor: whole(factor, "Split into") },
      retention: keep.value === "none" ? { type: "none" } : {
        type: keep.value, limit: whole(limit, "Keep") * Number(unit.value),
        // A second bound that was set elsewhere stays.
        maximum: keep.value === retention.type ? retention.maximum : 0,
      },
      tags: tags.value.split(",").map((tag) => tag.trim()).filter(Boolean),
    }),
  };
}
