// How numbers are said, and the few ways in which this page makes elements. Text goes in as text: nothing here,
// or anywhere else in the script, writes markup.

const GIB = 2 ** 30, MIB = 2 ** 20, KIB = 2 ** 10;

/** A size, as every command prints it (weir-settings, size.rs): below a thousand of each unit. */
function bytesText(bytes) {
  const size = Math.abs(bytes);
  if (size === 0) return "0";
  if (size < KIB) return bytes + " B";
  if (size / KIB < 999.95) return (bytes / KIB).toFixed(1) + " KiB";
  if (size / MIB < 999.95) return (bytes / MIB).toFixed(1) + " MiB";
  if (size / GIB < 999.995) return (bytes / GIB).toFixed(2) + " GiB";
  return (bytes / (KIB * GIB)).toFixed(2) + " TiB";
}

/** A count with thin spaces between groups of three digits. */
function countText(count) {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** A time since the start, in seconds, with as many digits as a stretch of this length needs. */
function secondsText(ns, span) {
  const seconds = ns / 1e9;
  const digits = Math.max(0, Math.min(9, 2 - Math.floor(Math.log10(Math.max(span, 1) / 1e9))));
  if (seconds >= 3600 && digits < 3) {
    const whole = Math.floor(seconds);
    const two = (value) => String(value).padStart(2, "0");
    return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  }
  return seconds.toFixed(digits) + " s";
}

/** An element with attributes and children; strings become text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

const byId = (id) => document.getElementById(id);

/** A row of choices of which one is on; arrow keys move through it, as a radio group does. */
function segmented(id, choices, chosen, choose) {
  const group = byId(id);
  group.hidden = choices.length < 2;
  const buttons = choices.map(([value, text]) =>
    make("button", { type: "button", role: "radio", "data-value": value, onclick: () => pick(value) }, text));
  function pick(value) {
    show(value);
    choose(value);
  }
  function show(value) {
    for (const button of buttons) {
      const on = button.dataset.value === value;
      button.setAttribute("aria-checked", on);
      button.tabIndex = on ? 0 : -1;
    }
  }
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = buttons.findIndex((button) => button.tabIndex === 0);
    const next = buttons[(at + step + buttons.length) % buttons.length];
    next.focus();
    pick(next.dataset.value);
  });
  group.replaceChildren(...buttons);
  show(chosen);
  return show;
}

/** A canvas that knows its size in CSS pixels and draws sharp on every screen. */
function surface(id, height) {
  const canvas = byId(id);
  const pen = canvas.getContext("2d");
  const self = { canvas, pen, width: 0, height, scale: 1 };
  self.fit = (wanted = self.height) => {
    self.height = wanted;
    self.width = Math.max(120, Math.floor(canvas.parentElement.clientWidth));
    self.scale = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(self.width * self.scale), Math.round(self.height * self.scale)];
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w;
      canvas.height = h;
      canvas.style.height = self.height + "px";
    }
  };
  self.begin = () => {
    pen.setTransform(self.scale, 0, 0, self.scale, 0, 0);
    pen.clearRect(0, 0, self.width, self.height);
  };
  self.at = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  return self;
}

/** The text cut so that it fits into a width. */
function fitted(pen, text, width) {
  if (width < 18) return "";
  if (pen.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return low > 1 ? text.slice(0, low) + "…" : "";
}

/** The little window beside the pointer: lines of [text, value, colour], then a stack. */
const tip = {
  show(event, title, lines = [], stack = []) {
    const box = byId("tip");
    const rows = lines.map(([text, value, colour]) =>
      make("div", { class: "tip-row" },
        make("i", { style: colour ? `background:${colour}` : "visibility:hidden" }),
        make("span", {}, text), make("b", {}, value ?? "")));
    const frames = stack.length ? [make("ol", { class: "tip-stack" }, ...stack.map((frame) => make("li", {}, frame)))] : [];
    box.replaceChildren(make("div", { class: "tip-title" }, title), ...rows, ...frames);
    box.hidden = false;
    const [w, h] = [box.offsetWidth, box.offsetHeight];
    const x = event.clientX + 16 + w > innerWidth ? Math.max(4, event.clientX - w - 12) : event.clientX + 16;
    const y = Math.max(4, Math.min(event.clientY + 14, innerHeight - h - 8));
    box.style.transform = `translate(${x}px, ${y}px)`;
  },
  hide() { byId("tip").hidden = true; },
};
