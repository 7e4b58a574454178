// Ask a graph that `lvd export` wrote, from JavaScript: npm install onnxruntime-node, then
//   node ask.cjs homes.onnx '[{"area": 80, "rooms": 3, "district": "north", "garden": true}]'
const { readFileSync } = require("node:fs");
const ort = require("onnxruntime-node");

function features(column, cell) {
  if (column.codes) return [column.codes.indexOf(String(cell ?? ""))];
  if (column.kind === "category") {
    const { categories = [], rare, shares, means = [] } = column;
    const text = String(cell ?? "");
    const hot = categories.map((level) => Number(level === text));
    if (!rare) return hot;
    const place = [...categories, ...rare].indexOf(text);
    const usual = means.map((one) => one.at(place)); // that of a new level, -1, is the last
    return [...hot, Number(!categories.includes(text)), place < 0 ? 0 : shares[place], ...usual];
  }
  if (column.kind === "date") throw new Error(`${column.name} holds dates: read_coded_columns.py has their parts`);
  if (cell === null || cell === undefined || cell === "") {
    if (!column.missing) throw new Error(`${column.name} is missing, which no row of the model's table was`);
    return column.missing.map((number) => number ?? NaN);
  }
  return [Number(cell === "true" ? 1 : cell === "false" ? 0 : cell)];
}

async function main([graph, text]) {
  const { columns, input, outputs } = JSON.parse(readFileSync(`${graph}.json`, "utf8"));
  const rows = JSON.parse(text).map((row) => columns.flatMap((column) => features(column, row[column.name])));
  const X = new ort.Tensor("float64", Float64Array.from(rows.flat()), [rows.length, rows[0].length]);
  const session = await ort.InferenceSession.create(graph);
  const answers = await session.run({ [input]: X });
  rows.forEach((_, i) => console.log(outputs.map((name) => `${name} ${answers[name].data[i]}`).join(", ")));
}

main(process.argv.slice(2));
