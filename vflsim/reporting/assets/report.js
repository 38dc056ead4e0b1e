"use strict";
/* Fill the page's charts, and let its tables be sorted. `start` is called again when the page has been replaced. */
function start() {
  for (const element of document.querySelectorAll(".chart:empty")) {
    const { curves, timeline, looks } = JSON.parse(document.getElementById(element.dataset.from).textContent);
    if (element.classList.contains("curves")) charts.curves(element, curves, looks);
    else charts.timeline(element, timeline);
  }
  for (const button of document.querySelectorAll(".sortable th button")) button.addEventListener("click", () => sort(button.parentElement));
}

function sort(head) {
  const body = head.closest("table").tBodies[0], column = head.cellIndex;
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const key = (row) => {
    const cell = row.cells[column];
    return cell.dataset.key === undefined ? cell.textContent : Number(cell.dataset.key);
  };
  const words = head.classList.contains("words");
  const order = (a, b) => {
    const [one, other] = [key(a), key(b)];
    if (!words && typeof one !== typeof other) return typeof one === "number" ? -1 : 1; /* cells without a number come last */
    return (typeof one === "number" ? one - other : one.localeCompare(other, undefined, { numeric: true })) * (up ? 1 : -1);
  };
  body.append(...[...body.rows].sort(order));
}

start();
let waiting = 0;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(charts.resize, 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", charts.redraw);
for (const event of ["beforeprint", "afterprint"]) {
  addEventListener(event, () => { document.documentElement.classList.toggle("printing", event === "beforeprint"); charts.redraw(); });
}
