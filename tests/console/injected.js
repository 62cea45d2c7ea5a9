// Each of these would run on a page without the policy.  Returns what ran, and how often the browser stopped something.
async () => {
  const script = document.createElement("script");
  try { script.textContent = "window.pwned = 1"; document.body.append(script); } catch { /* trusted types */ }
  try {
    document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.pwned = 2'>");
  } catch { /* trusted types */ }
  try { await fetch("http://127.0.0.1:1/"); } catch { /* connect-src */ }
  await new Promise((done) => setTimeout(done, 200));
  const seen = window.violations.length;
  window.violations = [];
  return [window.pwned ?? null, seen];
}
