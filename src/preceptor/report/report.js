"use strict";
// Theme: follow the system until the reader chooses.
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// Tables: a click on a heading sorts by it, a second click the other way round. Names rise, numbers fall at first.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
    const rows = [...table.tBodies[0].rows];
    const value = row => row.cells[column].dataset.value;
    const numeric = rows.every(row => !isNaN(value(row)));
    const before = heading.getAttribute("aria-sort");
    const rising = before ? before === "descending" : !numeric || column === 0;
    headings.forEach(other => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
    rows.sort((a, b) => (rising ? 1 : -1) * (numeric ? value(a) - value(b) : value(a).localeCompare(value(b))));
    table.tBodies[0].append(...rows);
  }));
}

// Flows: hovering or focusing one fades the others and says what it is.
for (const chart of document.querySelectorAll(".flows")) {
  const says = chart.closest("details").querySelector(".says");
  const pick = flow => { chart.classList.add("picked"); flow.classList.add("on"); says.textContent = flow.dataset.says; };
  const drop = flow => { chart.classList.remove("picked"); flow.classList.remove("on"); };
  for (const flow of chart.querySelectorAll(".flow")) {
    flow.addEventListener("mouseenter", () => pick(flow));
    flow.addEventListener("mouseleave", () => drop(flow));
    flow.addEventListener("focus", () => pick(flow));
    flow.addEventListener("blur", () => drop(flow));
  }
}

// Heat maps: the pointer names the cell under it.
const tip = document.getElementById("tip");
for (const map of document.querySelectorAll(".heat")) {
  const rows = JSON.parse(map.dataset.rows), columns = JSON.parse(map.dataset.columns), values = JSON.parse(map.dataset.values);
  map.addEventListener("mousemove", event => {
    const box = map.getBoundingClientRect();
    const row = Math.min(rows.length - 1, Math.floor((event.clientY - box.top) / box.height * rows.length));
    const column = Math.min(columns.length - 1, Math.floor((event.clientX - box.left) / box.width * columns.length));
    tip.textContent = `${rows[row]} → ${columns[column]}: ${values[row][column]}`;
    tip.hidden = false;
    tip.style.left = Math.min(event.clientX + 12, innerWidth - 220) + "px";
    tip.style.top = event.clientY + 12 + "px";
  });
  map.addEventListener("mouseleave", () => { tip.hidden = true; });
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(part => { part.open = true; }));
