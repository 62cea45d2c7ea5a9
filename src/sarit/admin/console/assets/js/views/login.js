// The log-in page: it stands in place of all others while nobody has logged in.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import { failure, field } from "../parts.js";

export function logIn(root, done) {
  const user = h("input", { name: "username", autocomplete: "username", autocapitalize: "none", spellcheck: "false", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const problem = h("div", {});
  const ok = h("button", { type: "submit", class: "primary" }, "Log in");
  const form = h("form", { novalidate: true, onsubmit: async (event) => {
    event.preventDefault();
    ok.disabled = true;
    try {
      await api.logIn(user.value, password.value);
      password.value = "";
      done();
    } catch (error) {
      fill(problem, failure(error));
      password.value = "";
      password.focus();
    } finally { ok.disabled = false; }
  } },
  field("User", user), field("Password", password), problem, h("div", { class: "actions" }, ok));
  fill(root, h("div", { class: "log-in" }, h("section", { class: "panel" }, h("h1", {}, "Log in"), form)));
  user.focus();
}
