// The nodes on a canvas: one cell each, zone by zone, coloured by the use of a resource.

const LIGHT = [
  [222, 235, 247], [158, 202, 225], [107, 174, 214], [66, 146, 198], [253, 190, 110], [240, 120, 60], [189, 30, 45],
];
const DARK = [
  [38, 48, 60], [36, 78, 108], [44, 108, 148], [84, 156, 196], [226, 176, 92], [240, 124, 64], [226, 62, 66],
];
const ABSENT = "rgba(128, 128, 128, .25)";
const LARGEST = 44, SMALLEST = 4, LABEL_HEIGHT = 18, TALLEST = 480;

export function colour(thousandths, isDark) {
  if (thousandths < 0) return ABSENT;
  const colours = isDark ? DARK : LIGHT;
  const at = Math.min(thousandths / 1000, 1) * (colours.length - 1);
  const low = Math.min(Math.floor(at), colours.length - 2), part = at - low;
  const mixed = colours[low].map((one, index) => Math.round(one + (colours[low + 1][index] - one) * part));
  return `rgb(${mixed})`;
}

export function isDark() {
  return getComputedStyle(document.documentElement).colorScheme === "dark";
}

export class HeatMap {
  constructor(canvas, { onSelect, onOpen }) {
    this.canvas = canvas;
    this.nodes = [];
    this.value = () => -1;
    this.selected = -1;
    this.onSelect = onSelect;
    this.drawn = [];
    canvas.addEventListener("keydown", (event) => this.#key(event, onOpen));
    canvas.addEventListener("mousemove", (event) => this.select(this.#at(event)));
    canvas.addEventListener("click", () => this.selected >= 0 && onOpen(this.nodes[this.selected]));
    new ResizeObserver(() => this.#arrange()).observe(canvas);
  }

  // Nodes in the order of zone and name, and a function that gives the use of one in thousandths.
  show(nodes, value) {
    const isSame = nodes.length === this.nodes.length
      && nodes.every((one, index) => one.name === this.nodes[index].name && one.zone === this.nodes[index].zone);
    const name = this.nodes[this.selected]?.name;
    this.nodes = nodes;
    this.value = value;
    if (isSame) {
      this.#paint();
    } else {
      this.selected = nodes.findIndex((one) => one.name === name);
      this.#arrange();
    }
  }

  select(index) {
    if (index < 0 || index >= this.nodes.length || index === this.selected) return;
    const before = this.selected;
    this.selected = index;
    for (const one of [before, index]) {
      this.drawn[one] = "";
      this.#cell(one);
    }
    this.onSelect(this.nodes[index]);
  }

  #arrange() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    const zones = new Map();
    this.nodes.forEach((one) => zones.set(one.zone, (zones.get(one.zone) ?? 0) + 1));
    const height = (size) => [...zones.values()].reduce(
      (sum, count) => sum + LABEL_HEIGHT + Math.ceil(count / Math.max(1, Math.floor(width / size))) * size, 0);
    let size = LARGEST;
    while (size > SMALLEST && height(size) > TALLEST) size -= 1;
    this.size = size;
    this.columns = Math.max(1, Math.floor(width / size));
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(Math.max(height(size), 1) * scale);
    this.canvas.style.height = `${Math.max(height(size), 1)}px`;
    this.context = this.canvas.getContext("2d");
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.places = [];
    this.labels = [];
    let top = 0, zone = null, column = 0;
    this.nodes.forEach((one, index) => {
      if (one.zone !== zone || column === this.columns) {
        if (index) top += size;
        column = 0;
      }
      if (one.zone !== zone) {
        this.labels.push([`${one.zone || "no zone"} (${zones.get(one.zone)})`, top + LABEL_HEIGHT - 5]);
        top += LABEL_HEIGHT;
        zone = one.zone;
      }
      this.places[index] = [column * size, top];
      column += 1;
    });
    this.drawn = [];
    this.#labels();
    this.#paint();
  }

  #labels() {
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.context.fillStyle = getComputedStyle(this.canvas).color;
    this.context.font = "12px system-ui, sans-serif";
    this.labels.forEach(([text, bottom]) => this.context.fillText(text, 0, bottom));
  }

  // After a change of the theme.
  repaint() {
    if (this.context) {
      this.drawn = [];
      this.#labels();
      this.#paint();
    }
  }

  #paint() {
    this.isDark = isDark();
    if (this.context) this.nodes.forEach((_, index) => this.#cell(index));
  }

  #cell(index) {
    const one = this.nodes[index];
    if (!one) return;
    const fill = colour(this.value(one), this.isDark), look = `${fill}${one.isCordoned}${index === this.selected}`;
    if (this.drawn[index] === look) return;
    this.drawn[index] = look;
    const [left, top] = this.places[index], side = this.size - 1, context = this.context;
    context.clearRect(left, top, side, side);
    context.fillStyle = fill;
    context.fillRect(left, top, side, side);
    if (one.isCordoned) {
      context.strokeStyle = "#555";
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(left, top);
      context.lineTo(left + side, top + side);
      context.stroke();
    }
    if (index === this.selected) {
      context.strokeStyle = getComputedStyle(this.canvas).color;
      context.lineWidth = 2;
      context.strokeRect(left + 1, top + 1, side - 2, side - 2);
    }
  }

  #at(event) {
    const x = event.offsetX, y = event.offsetY;
    return this.places?.findIndex(([left, top]) =>
      x >= left && x < left + this.size && y >= top && y < top + this.size) ?? -1;
  }

  #key(event, onOpen) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns };
    if (event.key in steps) {
      this.select(Math.max(0, Math.min(this.nodes.length - 1, this.selected + steps[event.key])));
    } else if (event.key === "Home") {
      this.select(0);
    } else if (event.key === "End") {
      this.select(this.nodes.length - 1);
    } else if (event.key === "Enter" && this.selected >= 0) {
      onOpen(this.nodes[this.selected]);
    } else {
      return;
    }
    event.preventDefault();
  }
}
