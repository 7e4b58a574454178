// Sorts, filters and opens rows; drawings are shown as images, which run nothing.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const STEP = 25;

  const rows = data.rows.map((r) => {
    const [row, y, prediction, lower, upper, evidence, status, sentence, unknown, missing, neighbors, cells, picture, known, times] = r;
    const finite = lower !== null && upper !== null;
    return {
      row, y, prediction, evidence, status, sentence, unknown, missing, neighbors, cells, picture, times,
      known: known ? "yes" : "no",
      lower: lower === null ? -Infinity : lower,
      upper: upper === null ? Infinity : upper,
      width: finite ? upper - lower : Infinity,
      error: Math.abs(y - prediction),
      text: [row, status, ...cells].join("\n").toLowerCase(),
    };
  });
  const FIGURES = ["row", "y", "prediction", "lower", "upper", "width", "error", "evidence", "known", "status"];
  const state = { key: "error", descending: true, query: "", status: "", shown: STEP, open: null };

  // --- numbers

  function number(value) {
    if (value === Infinity) return "∞";
    if (value === -Infinity) return "−∞";
    if (data.decimals === null) return value.toExponential(3);
    const digits = { minimumFractionDigits: data.decimals, maximumFractionDigits: data.decimals };
    return value.toLocaleString("en-US", digits);
  }

  const percent = (share) => `${(100 * share).toFixed(1)}%`;

  // --- filter and sort

  function parse(query) {
    const parts = query.match(/^\s*(.*?)\s*([=<>])\s*(.*?)\s*$/s);
    const plain = { test: (row) => row.text.includes(query.trim().toLowerCase()) };
    if (!parts) return plain;
    const name = parts[1].toLowerCase();
    const wanted = parts[3].toLowerCase();
    const column = data.columns.findIndex((one) => one.toLowerCase() === name);
    const figure = FIGURES.find((one) => one === name) ?? (name === data.target.toLowerCase() ? "y" : undefined);
    if (column < 0 && figure === undefined) return plain;
    const value = (row) => (column >= 0 ? row.cells[column] : row[figure]);
    if (parts[2] === "=") {
      const same = (text) => text.toLowerCase() === wanted || (wanted !== "" && text !== "" && Number(text) === Number(wanted));
      return { test: (row) => same(String(value(row))) };
    }
    const sign = parts[2] === "<" ? -1 : 1;
    const limit = Number(wanted);
    return { test: (row) => value(row) !== "" && sign * (Number(value(row)) - limit) > 0 };
  }

  function selected() {
    const filter = parse(state.query);
    const found = rows.filter((row) => (!state.status || row.status === state.status) && filter.test(row));
    const sign = state.descending ? -1 : 1;
    const before = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    return found.sort((a, b) => sign * before(a[state.key], b[state.key]) || a.row - b.row);
  }

  // --- one row opened

  const heaviest = (row) => Math.max(...row.neighbors.map((one) => one[1]), 1e-12);

  function drawLine(row) {
    const values = [row.y, row.prediction, row.lower, row.upper, ...row.neighbors.map((one) => one[4])];
    const known = values.filter(Number.isFinite);
    const wide = Math.min(720, table.parentElement.clientWidth - 40);
    const x = scale(known, wide);
    const label = `Interval from ${number(row.lower)} to ${number(row.upper)}, prediction ${number(row.prediction)}, true value ${number(row.y)}`;
    const svg = shape("svg", { width: wide, height: 78, class: "line", role: "img", "aria-label": label });
    svg.append(shape("line", { class: "axis", x1: 12, x2: wide - 12, y1: 58, y2: 58 }));
    const span = Number.isFinite(row.lower) && Number.isFinite(row.upper) ? "span" : "span open-end";
    svg.append(shape("line", { class: span, x1: x(row.lower), x2: x(row.upper), y1: 24, y2: 24 }));
    const most = heaviest(row);
    for (const [, weight, , , target] of row.neighbors) {
      svg.append(shape("circle", { class: "near", cx: x(target), cy: 46, r: 2 + 6 * Math.sqrt(weight / most) }));
    }
    svg.append(shape("line", { class: "guess", x1: x(row.prediction), x2: x(row.prediction), y1: 14, y2: 34 }));
    const at = x(row.y);
    const truth = `${at},15 ${at + 8},24 ${at},33 ${at - 8},24`;
    svg.append(shape("polygon", { class: row.status === "missed" ? "truth missed" : "truth", points: truth }));
    for (const [value, anchor] of [[Math.min(...known), "start"], [Math.max(...known), "end"]]) {
      svg.append(shape("text", { x: x(value), y: 74, "text-anchor": anchor }, number(value)));
    }
    return svg;
  }

  function drawing(index, caption) {
    const source = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(data.pictures[index])}`;
    return element("figure", {}, element("img", { src: source, alt: caption }), element("figcaption", {}, caption));
  }

  function drawings(row) {
    const list = element("ul", { class: "drawings" });
    if (row.picture !== null) list.append(element("li", {}, drawing(row.picture, `row ${row.row}`)));
    for (const [place, weight, , , target] of row.neighbors) {
      const index = data.neighbors[place]?.[1] ?? null;
      if (index !== null) {
        list.append(element("li", {}, drawing(index, `neighbour ${place}: weight ${percent(weight)}, ${number(target)}`)));
      }
    }
    return list;
  }

  function neighborTable(row) {
    const score = data.score ? [data.score[0].toUpperCase() + data.score.slice(1)] : [];
    const figures = ["Calibration row", "Weight", "Similarity", "Error", ...score, "True value"];
    const names = [...figures, ...data.neighborColumns];
    const head = element("tr", {}, ...names.map((name, at) => element("th", { scope: "col", class: at < figures.length ? "num" : "" }, name)));
    const most = heaviest(row);
    const body = row.neighbors.map(([place, weight, similarity, error, target, ...scores]) => {
      const cells = data.neighbors[place]?.[0] ?? [];
      return element("tr", {},
        element("th", { scope: "row", class: "num" }, String(place)),
        element("td", { class: "num" }, weightBar(weight, most), percent(weight)),
        element("td", { class: "num" }, similarity.toFixed(3)),
        element("td", { class: "num" }, number(error)),
        ...scores.map((one) => element("td", { class: "num" }, one.toFixed(2))),
        element("td", { class: "num" }, number(target)),
        ...cells.map((cell) => element("td", {}, cell)));
    });
    const table = element("table", {}, element("caption", { class: "unseen" }, `Neighbours of row ${row.row}`),
      element("thead", {}, head), element("tbody", {}, ...body));
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Neighbours of row ${row.row}` }, table);
  }

  function panel(row) {
    const made = element("div", { class: "panel" });
    made.append(element("h3", {}, `Row ${row.row}`));
    if (data.explained) made.append(element("p", { class: "why" }, row.sentence));
    made.append(drawLine(row));
    const circles = data.explained ? "; circles: true values of the neighbours, larger with their weight" : "";
    made.append(element("p", { class: "small" },
      `Bar: interval; vertical line: prediction; diamond: true value${circles}.`));
    const pictures = drawings(row);
    if (pictures.childElementCount) made.append(pictures);
    if (data.explained) {
      const rest = 1 - row.unknown - row.neighbors.reduce((sum, one) => sum + one[1], 0);
      made.append(element("h4", {}, "Neighbours"));
      if (row.neighbors.length) made.append(neighborTable(row));
      made.append(element("p", { class: "small" },
        `The calibration rows that weigh most, by their number in the fitted table. All others carry ${percent(Math.max(rest, 0))} of the weight; ${percent(row.unknown)} is the weight of the unknown.`));
    }
    if (data.columns.length) {
      made.append(element("h4", {}, row.times ? "Cells, and how much wider each makes this interval against other rows" : "Cells"));
      const cells = element("dl", { class: "cells" });
      data.columns.forEach((name, at) => {
        const cell = element("div", {}, element("dt", {}, name), element("dd", {}, row.cells[at] || "missing"));
        const times = row.times?.[at] ?? 1;
        if (times > 1.1 || times < 1 / 1.1) {
          const said = times > 1 ? `${times.toPrecision(2)} times wider` : `narrower: ${times.toPrecision(2)} times`;
          cell.append(element("dd", { class: `times ${times > 1 ? "wider" : "narrower"}` }, said));
        }
        cells.append(cell);
      });
      made.append(cells);
    }
    return made;
  }

  // --- the table

  const table = document.getElementById("table");
  const headings = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const count = document.getElementById("count");
  const more = document.getElementById("more");
  const classes = headings.map((heading) => heading.className);

  function line(row) {
    const opened = state.open === row.row;
    const button = element("button", { type: "button", class: "open", "aria-expanded": String(opened), "aria-label": `Row ${row.row}` }, String(row.row));
    if (opened) button.setAttribute("aria-controls", "panel");
    const figures = [row.y, row.prediction, row.lower, row.upper, row.width, row.error].map(number);
    const made = element("tr", { class: opened ? "row opened" : "row", "data-row": row.row },
      element("th", { scope: "row" }, button),
      ...figures.map((text, at) => element("td", { class: classes[at + 1] }, text)),
      ...(data.explained ? [
        element("td", { class: classes[7] }, row.evidence.toFixed(1)),
        element("td", { class: classes[8] }, row.known),
      ] : []),
      element("td", {}, element("span", { class: `badge ${row.status}` }, row.status)));
    made.addEventListener("click", (event) => {
      const selecting = event.detail > 0 && getSelection().toString() !== "";
      if (!selecting) toggle(row.row);
    });
    return made;
  }

  function fitPanel() {
    const open = body.querySelector(".panel");
    if (open) open.style.width = `${table.parentElement.clientWidth}px`;
  }

  function show() {
    const found = selected();
    const lines = [];
    for (const row of found.slice(0, state.shown)) {
      lines.push(line(row));
      if (state.open === row.row) {
        lines.push(element("tr", {}, element("td", { class: "detail", colspan: headings.length, id: "panel" }, panel(row))));
      }
    }
    body.replaceChildren(...lines);
    fitPanel();
    const listed = Math.min(state.shown, found.length).toLocaleString("en-US");
    count.textContent = found.length
      ? `${listed} of ${found.length.toLocaleString("en-US")} rows listed.`
      : "No row matches the filter.";
    more.hidden = found.length <= state.shown;
    for (const heading of headings) {
      if (heading.dataset.key === state.key) heading.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    }
  }

  function toggle(number) {
    state.open = state.open === number ? null : number;
    show();
    body.querySelector(`tr[data-row="${number}"] button`)?.focus({ preventScroll: true });
  }

  for (const heading of headings) {
    const button = element("button", { type: "button" }, heading.textContent);
    button.addEventListener("click", () => {
      const key = heading.dataset.key;
      state.descending = state.key === key ? !state.descending : key !== "row" && key !== "known" && key !== "status";
      state.key = key;
      state.shown = STEP;
      show();
    });
    heading.replaceChildren(button);
  }
  body.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.open !== null) toggle(state.open);
  });
  more.addEventListener("click", () => {
    const first = state.shown;
    state.shown += STEP;
    show();
    body.querySelectorAll("tr.row")[first]?.querySelector("button").focus();
  });
  const form = document.getElementById("filter");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    state.query = document.getElementById("query").value;
    state.status = document.getElementById("status").value;
    state.shown = STEP;
    show();
  });
  addEventListener("resize", fitPanel);
  document.getElementById("along")?.addEventListener("change", (event) => {
    for (const one of document.querySelectorAll("[data-along]")) one.hidden = one.dataset.along !== event.target.value;
  });

  // --- light and dark

  const theme = document.getElementById("theme");
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const tell = () => theme.setAttribute("aria-pressed", String(isDark()));
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    tell();
  });
  prefersDark.addEventListener("change", tell);

  theme.hidden = false;
  form.hidden = false;
  for (const one of document.querySelectorAll(".scripted")) one.hidden = false;
  tell();
  show();
})();
