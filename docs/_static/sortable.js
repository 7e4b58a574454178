// A click on a heading sorts the rows below it: by number where both cells begin with one, else by text.
"use strict";

const numberOf = (cell) => {
  const text = cell.textContent.trim();
  if (text.startsWith("∞")) return Infinity;
  const found = text.replaceAll(",", "").match(/^[-+]?\d*\.?\d+/);
  return found ? Number(found[0]) : NaN;
};

const compare = (one, other) => {
  const [a, b] = [numberOf(one), numberOf(other)];
  if (Number.isNaN(a) && Number.isNaN(b)) return one.textContent.localeCompare(other.textContent);
  if (Number.isNaN(a)) return 1; // what has no figure comes last
  if (Number.isNaN(b)) return -1;
  return a - b;
};

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils")) {
    const body = table.tBodies[0];
    if (!body || body.rows.length < 5) continue;
    const headings = [...table.querySelectorAll("thead th")];
    const sort = (column) => {
      const descending = headings[column].getAttribute("aria-sort") === "ascending";
      const rows = [...body.rows].sort((a, b) => compare(a.cells[column], b.cells[column]));
      body.append(...(descending ? rows.reverse() : rows));
      headings.forEach((heading, index) => {
        if (index === column) heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
        else heading.removeAttribute("aria-sort");
      });
    };
    headings.forEach((heading, column) => {
      heading.classList.add("sortable");
      heading.tabIndex = 0;
      heading.title = "Sort by this column";
      heading.addEventListener("click", () => sort(column));
      heading.addEventListener("keydown", (event) => {
        if (event.key === "Enter") sort(column);
      });
    });
  }
});
