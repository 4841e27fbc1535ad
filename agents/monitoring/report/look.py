"""How the page looks, and the script that sorts its tables."""

STYLE = """
:root { --ground: #ffffff; --ink: #1b1d21; --soft: #565b64; --line: #d5d8dd; --panel: #f6f7f9; --link: #1558a8; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #16181c; --ink: #e7e9ec; --soft: #a9aeb7; --line: #3a3f47; --panel: #1e2126; --link: #8ab8f0; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1rem 1.25rem 4rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; }
h1 { font-size: 1.7rem; margin: 0.5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 0.5rem; padding-top: 0.5rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 0.25rem; }
p, li { max-width: 62rem; overflow-wrap: anywhere; }
a { color: var(--link); }
nav ol { columns: 18rem; column-gap: 2.5rem; padding-left: 1.5rem; }
.notes { border: 1px solid #b07a00; border-left-width: 5px; border-radius: 4px; padding: 0.25rem 1rem; }
.notes h2 { border: 0; margin: 0.25rem 0; font-size: 1.05rem; padding: 0; }
.notes ul { margin: 0.25rem 0; padding-left: 1.2rem; }
.legend { position: sticky; top: 0; background: var(--ground); border-bottom: 1px solid var(--line); z-index: 1; }
.legend ul { list-style: none; margin: 0.75rem 0 0; padding: 0.3rem 0; display: flex; flex-wrap: wrap;
  gap: 0.2rem 1.4rem; }
.legend li { display: flex; align-items: center; gap: 0.4rem; font-size: 0.9rem; }
.legend svg { width: 3rem; height: auto; flex: none; }
section { scroll-margin-top: 4rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 23rem), 1fr)); gap: 1rem;
  align-items: start; }
figure { margin: 0; padding: 0.6rem; background: var(--panel); border-radius: 6px; break-inside: avoid; }
figure svg { width: 100%; height: auto; display: block; max-width: 36rem; }
figcaption { font-weight: 600; font-size: 0.92rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 0.75rem 0; max-height: 40rem; overflow-y: auto; }
table { border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0.3rem 0; }
th, td { padding: 0.28rem 0.7rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
td.number { text-align: right; }
th { position: sticky; top: 0; background: var(--ground); padding: 0; }
th button { all: unset; cursor: pointer; font-weight: 600; padding: 0.28rem 0.7rem; width: 100%;
  box-sizing: border-box; }
th button:focus-visible, .scroll:focus-visible, a:focus-visible { outline: 2px solid var(--link); }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
summary { cursor: pointer; padding: 0.5rem 0; }
@media print {
  .legend { position: static; }
  .scroll { max-height: none; overflow: visible; }
  th { position: static; }
  td, th { white-space: normal; }
  body { max-width: none; font-size: 11px; }
  .panels { grid-template-columns: 1fr 1fr; }
}
"""

# Numbers by their data-key, everything else as text; what is empty ("-") stays last.
SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.key === undefined ? cell.textContent : Number(cell.dataset.key);
  };
  heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const compare = (a, b) => {
      const [x, y] = [key(a, column), key(b, column)];
      const empty = value => value === "-" || Number.isNaN(value);
      if (empty(x) || empty(y)) return empty(x) - empty(y);
      const both = typeof x === "number" && typeof y === "number";
      const order = both ? x - y : String(x).localeCompare(String(y), undefined, {numeric: true});
      return down ? -order : order;
    };
    [...body.rows].sort(compare).forEach(row => body.append(row));
  }));
}
document.documentElement.dataset.sortable = "yes";
"""
