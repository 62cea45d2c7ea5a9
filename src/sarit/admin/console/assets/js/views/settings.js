// The configuration of the node, secrets hidden.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import { later, panel, table } from "../parts.js";

export async function settings({ root }) {
  const { settings: found } = await api.get("/settings");
  const results = h("div", {});
  const search = h("input", { type: "search", placeholder: "Search", spellcheck: "false", "aria-label": "Search" });
  const origins = found.some((each) => each.origin);
  const draw = () => {
    const wanted = search.value.trim().toLowerCase();
    const rows = found.filter((each) => `${each.name} ${each.value}`.toLowerCase().includes(wanted));
    fill(results, panel(null, table("Configuration", [
      ["Option", (s) => h("code", {}, s.name)], ["Value", (s) => (s.value === "" ? h("span", { class: "muted" }, "not set") : h("code", {}, s.value))],
      origins && ["From", (s) => s.origin],
    ].filter(Boolean), rows, "No option has this name.")));
  };
  fill(root, h("h1", {}, "Settings"), h("p", { class: "muted" }, "As this process runs with them. Secrets are hidden."), h("div", { class: "filters" }, search), results);
  search.addEventListener("input", later(draw, 100));
  draw();
}
