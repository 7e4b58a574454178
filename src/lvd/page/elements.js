"use strict";
// What the report and the server's form are built of. Texts only ever become text nodes.
const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

// Maps values to positions in a drawing, with some room beyond the finite ones; others are at its border.
function scale(values, wide) {
  const known = values.filter(Number.isFinite);
  const least = Math.min(...known), most = Math.max(...known);
  const room = (most - least || Math.abs(most) || 1) * 0.07;
  const low = least - room, high = most + room;
  return (value) => 12 + ((Math.min(Math.max(value, low), high) - low) / (high - low)) * (wide - 24);
}

function weightBar(weight, heaviest) {
  const bar = element("span", { class: "weight", "aria-hidden": "true" });
  bar.style.width = `${Math.round((48 * weight) / heaviest)}px`;
  return bar;
}
