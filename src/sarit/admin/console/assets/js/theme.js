// Before the page is painted: the theme that was chosen, else the system's.
{
  let chosen = null;
  try { chosen = localStorage.getItem("sarit-theme"); } catch { /* storage is off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
