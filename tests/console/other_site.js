// What a page of another site tries on the node at `url`.  Returns what it could read, and whether it saw into a frame.
async (url) => {
  const read = [];
  const attempt = async (path, init) => {
    try {
      const reply = await fetch(url + path, init);
      read.push(reply.type === "opaque" ? "opaque" : await reply.text());
    } catch { read.push("refused"); }
  };
  const body = JSON.stringify({ scope: "forged" });
  await attempt("/console/api/session", {});
  await attempt("/console/api/scopes", { method: "POST", body, mode: "no-cors" });
  const headers = { "Content-Type": "application/json", "X-Sarit-Token": "x" };
  await attempt("/console/api/scopes", { method: "POST", body, headers });
  const form = Object.assign(document.createElement("form"), {
    method: "post", action: `${url}/console/api/scopes`, target: "out", enctype: "text/plain",
  });
  const out = Object.assign(document.createElement("iframe"), { name: "out" });
  const shown = Object.assign(document.createElement("iframe"), { src: `${url}/` });
  document.body.append(out, form, shown);
  form.submit();
  await new Promise((done) => setTimeout(done, 1500));
  let seen = null;
  try { seen = shown.contentDocument; } catch { /* another origin */ }
  return [read, seen === null];
}
