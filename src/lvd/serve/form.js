// Asks the server for the model's columns and for one row at a time.
(() => {
  const MOST_CHOICES = 40;
  const BARS = 20;
  const at = (id) => document.getElementById(id);
  let model = null;

  function number(value) {
    if (Math.abs(value) === Infinity) return value > 0 ? "∞" : "−∞";
    const large = Math.abs(value) >= 1e9 || (value !== 0 && Math.abs(value) < 1e-4);
    return large ? value.toExponential(3) : value.toLocaleString("en-US", { maximumSignificantDigits: 5 });
  }

  const percent = (share) => `${+(100 * share).toFixed(1)}%`;

  async function call(path, content) {
    const token = sessionStorage.getItem("lvd-token");
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const asked = content === undefined ? { headers } : {
      method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(content),
    };
    const response = await fetch(path, asked);
    return { status: response.status, content: await response.json() };
  }

  // --- the form

  function field(column, index) {
    const id = `field-${index}`;
    let input;
    if (column.kind === "boolean" || (column.levels.length && column.levels.length <= MOST_CHOICES)) {
      const choices = column.kind === "boolean" ? ["true", "false"] : column.levels;
      input = element("select", { id }, element("option", { value: "" }, "missing"), ...choices.filter((one) => one !== "").map((one) => element("option", {}, one)));
    } else {
      input = element("input", { id, type: "text", autocomplete: "off" });
      if (column.kind === "number") input.setAttribute("inputmode", "decimal");
    }
    if (column.usual !== null) input.value = String(column.usual);
    const range = column.low === null ? "" : `training rows: ${number(column.low)} to ${number(column.high)}`;
    const hint = element("span", { class: "small" }, column.kind === "date" ? "such as 2024-03-31" : range);
    return element("label", { for: id }, column.name, input, hint);
  }

  function cell(column, index) {
    const text = at(`field-${index}`).value.trim();
    if (text === "") return null;
    if (column.kind === "boolean") return text === "true";
    return column.kind === "number" && Number.isFinite(Number(text)) ? Number(text) : text;
  }

  const asRow = () => Object.fromEntries(model.columns.map((column, index) => [column.name, cell(column, index)]));

  function showForm() {
    at("title").textContent = `Prediction intervals for ${model.targets.join(", ")}`;
    const counted = model.keeps_rows ? " A row that is asked for here counts as predicted, and waits for its label." : "";
    at("origin").textContent = `Model ${model.model}. ${model.promise}${counted}`;
    at("fields").replaceChildren(...model.columns.map(field));
    const levels = [...new Set([0.5, 0.8, 0.9, 0.95, ...model.levels])].sort();
    at("level").replaceChildren(...levels.map((one) => element("option", { value: one }, percent(one))));
    at("level").value = String(model.levels[0]);
    at("level-label").hidden = model.keeps_rows;
    at("ask").hidden = false;
    at("locked").hidden = true;
  }

  // --- one row's answer

  function drawInterval(one) {
    const wide = Math.max(240, Math.min(720, at("main").clientWidth - 70));
    const near = (one.neighbors ?? []).filter((row) => Number.isFinite(row.target));
    const x = scale([one.y_pred, one.lower, one.upper, ...near.map((row) => row.target)], wide);
    const label = `Interval from ${number(one.lower)} to ${number(one.upper)}, prediction ${number(one.y_pred)}`;
    const svg = shape("svg", { viewBox: `0 0 ${wide} 84`, width: wide, height: 84, class: "line", role: "img", "aria-label": label });
    const finite = Number.isFinite(one.lower) && Number.isFinite(one.upper);
    const heaviest = Math.max(...near.map((row) => row.weight), 1e-12);
    svg.append(
      shape("line", { class: "axis", x1: 12, x2: wide - 12, y1: 58, y2: 58 }),
      shape("line", { class: finite ? "span" : "span open-end", x1: x(one.lower), x2: x(one.upper), y1: 24, y2: 24 }),
      ...near.map((row) => shape("circle", { class: "near", cx: x(row.target), cy: 46, r: 2 + 6 * Math.sqrt(row.weight / heaviest) })),
      shape("line", { class: "guess", x1: x(one.y_pred), x2: x(one.y_pred), y1: 12, y2: 36 }),
      endText(one.lower, x(one.lower), x(one.lower) > 90 ? "end" : "start"),
      endText(one.upper, x(one.upper), x(one.upper) < wide - 90 ? "start" : "end"));
    return svg;
  }

  const endText = (value, place, anchor) => shape("text", { x: place, y: 76, "text-anchor": anchor }, number(value));

  function bars(quantiles) {
    const step = 1 / (quantiles.length + 1);
    const points = quantiles.map((value, place) => [value, (place + 1) * step]).filter(([value]) => Number.isFinite(value));
    if (points.length < 3 || points[0][0] === points.at(-1)[0]) return null;
    const low = points[0][0], high = points.at(-1)[0], width = (high - low) / BARS;
    const below = (value) => {
      const next = points.findIndex(([one]) => one > value);
      if (next < 1) return next < 0 ? points.at(-1)[1] : points[0][1];
      const [[left, under], [right, over]] = [points[next - 1], points[next]];
      return under + ((value - left) / (right - left)) * (over - under);
    };
    const masses = Array.from({ length: BARS }, (_, place) => below(low + (place + 1) * width) - below(low + place * width));
    return { low, high, masses, told: points.at(-1)[1] - points[0][1] };
  }

  function drawDistribution(one) {
    const found = one.distribution && bars(one.distribution.map(Number));
    if (!found) return element("p", { class: "small" }, "No distribution can be told: too little is known here.");
    const most = Math.max(...found.masses), wide = 480, tall = 150;
    const x = (value) => 20 + ((value - found.low) / (found.high - found.low)) * (wide - 40);
    const label = `Distribution from ${number(found.low)} to ${number(found.high)}`;
    const svg = shape("svg", { viewBox: `0 0 ${wide} ${tall + 24}`, class: "chart", role: "img", "aria-label": label });
    const each = (wide - 40) / BARS;
    found.masses.forEach((mass, place) => {
      const height = (mass / most) * (tall - 10);
      svg.append(shape("rect", { class: "share", x: 20 + place * each + 0.5, y: tall - height, width: each - 1, height: Math.max(0, height) }));
    });
    const inside = one.y_pred >= found.low && one.y_pred <= found.high;
    svg.append(
      shape("line", { class: "axis", x1: 20, x2: wide - 20, y1: tall, y2: tall }),
      ...(inside ? [shape("line", { class: "reference", x1: x(one.y_pred), x2: x(one.y_pred), y1: 4, y2: tall })] : []),
      shape("text", { x: 20, y: tall + 18 }, number(found.low)),
      shape("text", { x: wide - 20, y: tall + 18, "text-anchor": "end" }, number(found.high)));
    return element("figure", {}, svg, element("figcaption", {}, `The middle ${percent(found.told)} of the distribution at this row; the line is the prediction.`));
  }

  function neighborTable(one) {
    const heaviest = Math.max(...one.neighbors.map((row) => row.weight), 1e-12);
    const names = ["Calibration row", "Weight", "Similarity", "Error", "True value"];
    const labelled = one.neighbors.some((row) => row.label);
    const cells = labelled ? ["molecule"] : Object.keys(one.neighbors[0].cells ?? {});
    const body = one.neighbors.map((row) => {
      const figures = [row.similarity.toFixed(3), number(row.error ?? row.score), number(row.target)];
      return element("tr", {}, element("th", { scope: "row", class: "num" }, String(row.index)),
        element("td", { class: "num" }, weightBar(row.weight, heaviest), percent(row.weight)),
        ...figures.map((text) => element("td", { class: "num" }, text)), ...cells.map((name) => element("td", {}, (labelled ? row.label : row.cells[name]) ?? "")));
    });
    const head = [...names, ...cells].map((name, place) => element("th", { scope: "col", class: place < names.length ? "num" : "" }, name));
    const table = element("table", {}, element("caption", { class: "unseen" }, "The nearest calibration rows"),
      element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The nearest calibration rows" }, table);
  }

  function figures(one) {
    const told = [["prediction", number(one.y_pred)], ["from", number(one.lower)], ["to", number(one.upper)]];
    return element("dl", { class: "figures" }, ...told.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
  }

  function command(path, row) {
    const body = JSON.stringify(row).replaceAll("'", "'\\''");
    const text = `curl -H 'Content-Type: application/json' -d '${body}' '${location.origin}${path}'`;
    return element("details", {}, element("summary", {}, "The same as a command"), element("pre", {}, text));
  }

  function panel(one, path, row) {
    const unknown = one.known === false;
    const badge = element("span", { class: unknown ? "badge infinite" : "badge" }, unknown ? "unknown" : "known");
    const made = element("section", { class: "panel answer" }, element("h2", {}, one.target, ...(one.known === null ? [] : [" ", badge])));
    made.append(figures(one), drawInterval(one));
    if (one.sentence) made.append(element("h3", {}, "Why"), element("p", { class: "why" }, one.sentence));
    if (one.distribution !== undefined) made.append(element("h3", {}, "Distribution"), drawDistribution(one));
    if (one.neighbors?.length) {
      made.append(element("h3", {}, "The nearest calibration rows"), neighborTable(one), element("p", { class: "small" },
        `By their number in the fitted table; ${percent(one.unknown)} is the weight of what is not known. Circles above: their true values.`));
    }
    made.append(command(path, row));
    return made;
  }

  function explained(answer) {
    return answer.rows[0].map((one) => ({
      ...one, lower: Number(one.lower), upper: Number(one.upper), unknown: one.evidence.weight_at_infinity,
      neighbors: one.evidence.neighbors.map((row) => ({ ...row, target: Number(row.target) })),
    }));
  }

  function predicted(answer) {
    const row = answer.rows[0];
    return model.targets.map((target) => {
      const suffix = model.targets.length > 1 ? `_${target}` : "";
      const end = (name) => Number(row[Object.keys(row).find((key) => new RegExp(`^${name}_[\\d.]+`).test(key) && key.endsWith(suffix))]);
      return { target, y_pred: row[`y_pred${suffix}`], lower: end("lower"), upper: end("upper"), known: row.known };
    });
  }

  async function show() {
    const row = asRow();
    const level = model.keeps_rows ? "" : `?level=${at("level").value}`;
    let asked = model.keeps_rows ? null : await call(`/explain${level}`, row);
    const read = asked?.status === 200 ? explained : predicted;
    if (!asked || asked.status === 409) asked = await call(`/predict${level}`, row);
    if (asked.status === 401) return lock();
    const refused = at("refused");
    refused.hidden = asked.status === 200;
    if (asked.status !== 200) {
      refused.textContent = `${asked.content.error}; ${asked.content.what_to_do}`;
      return at("answer").replaceChildren();
    }
    return at("answer").replaceChildren(...read(asked.content).map((one) => panel(one, `/predict${level}`, row)));
  }

  function lock() {
    at("locked").hidden = false;
    at("ask").hidden = true;
    at("token").focus();
  }

  async function begin() {
    const asked = await call("/model");
    if (asked.status === 401) return lock();
    model = asked.content;
    return showForm();
  }

  at("unlock").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("lvd-token", at("token").value);
    begin();
  });
  at("row").addEventListener("submit", async (event) => {
    event.preventDefault();
    at("go").disabled = true;
    try {
      await show();
    } catch {
      at("refused").hidden = false;
      at("refused").textContent = "The server does not answer; is it still running?";
    } finally {
      at("go").disabled = false;
    }
  });
  at("theme").addEventListener("click", () => {
    const chosen = document.documentElement.dataset.theme;
    const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    at("theme").setAttribute("aria-pressed", String(!dark));
  });
  at("theme").setAttribute("aria-pressed", String(matchMedia("(prefers-color-scheme: dark)").matches));
  begin();
})();
