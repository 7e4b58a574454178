// Asks `lvd serve` for intervals, in Node: node examples/ask_server.mjs http://127.0.0.1:8000 '[{"area": 85}]'
const [server, rows] = process.argv.slice(2);
const headers = { "Content-Type": "application/json" };
if (process.env.LVD_TOKEN) headers.Authorization = `Bearer ${process.env.LVD_TOKEN}`;

const response = await fetch(new URL("/predict?level=0.9", server), { method: "POST", headers, body: rows });
const answer = await response.json();
if (!response.ok) {
  console.error(`${answer.error}; ${answer.what_to_do} (${answer.where})`);
  process.exit(1);
}
for (const row of answer.rows) {
  const [lower, upper] = [Number(row.lower_90), Number(row.upper_90)]; // "Infinity" is a string in JSON
  const known = row.known ? "" : ", like no row seen in training";
  console.log(`${row.y_pred.toFixed(1)}, from ${lower.toFixed(1)} to ${upper.toFixed(1)}${known}`);
}
