// Reads the debug paths every second or two and shows them. Nothing is written anywhere.

import { HeatMap, colour, isDark } from "./heat_map.js";
import { Details, clockTime, element, link, row } from "./details.js";

const TIMEOUT_MS = 10_000, HISTORY = 60;
const SECTIONS = ["nodes", "flow", "pending", "decisions", "groups", "plugins"];
const find = (id) => document.getElementById(id);
let token = sessionStorage.getItem("token") ?? "", isPaused = false;

async function read(path, timeoutMs = TIMEOUT_MS, leaving = null) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const signals = [AbortSignal.timeout(timeoutMs), ...(leaving ? [leaving] : [])];
  const answer = await fetch(`../debug/${path}`, { headers, signal: AbortSignal.any(signals) });
  if (answer.status === 401 || answer.status === 403) {
    find("sign-in").hidden = false;
    find("sign-in-reason").textContent = answer.status === 401
      ? "This scheduler wants to know who reads it."
      : "This user may not read /debug/*. See docs/endpoints.md for the role that may.";
    throw new Error("not signed in");
  }
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${(await answer.text()).slice(0, 200)}`);
  find("sign-in").hidden = true;
  return answer.json();
}

function say(text, isBad) {
  const line = find("connection");
  if (line.textContent !== text) line.textContent = text;
  line.className = isBad ? "bad" : "good";
}

// Each view is read again so many milliseconds after it was shown; never twice at a time.
function keepShowing(path, pauseMs, show) {
  const step = async () => {
    if (!isPaused && !document.hidden) {
      try {
        show(await read(typeof path === "function" ? path() : path));
        if (!isPaused) say("live", false);
      } catch (error) {
        say(error.name === "TypeError" ? "the scheduler does not respond" : error.message, true);
      }
    }
    setTimeout(step, pauseMs);
  };
  step();
}

// -- tiles ------------------------------------------------------------------------------------

const series = new Map();
let before = null;

function remember(name, value) {
  const kept = series.get(name) ?? [];
  kept.push(value);
  if (kept.length > HISTORY) kept.shift();
  series.set(name, kept);
}

function curve(values) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const most = Math.max(...values, 1e-9);
  svg.setAttribute("viewBox", `0 0 ${HISTORY - 1} 28`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", values.map((one, index) =>
    `${index ? "L" : "M"}${HISTORY - values.length + index} ${(27 - 25 * one / most).toFixed(1)}`).join(""));
  svg.append(path);
  return svg;
}

function tile(name, text, note, values) {
  const made = element("div", undefined, "tile");
  made.append(element("span", name, "quiet"), element("b", text), element("span", note, "quiet"));
  if (values?.length > 1) made.append(curve(values));
  return made;
}

// The lag below which 99 of 100 wake-ups were, since the overview before this one.
function recentLag(now, then) {
  const counts = now.map(([bound, count], index) => [Number(bound.replace("+Inf", "Infinity")), count - (then?.[index][1] ?? 0)]);
  const all = counts.at(-1)[1];
  return all ? (counts.find(([, count]) => count >= 0.99 * all)?.[0] ?? 0) : null;
}

function leadership(election) {
  if (!election) return ["no election", "this scheduler is alone"];
  if (election.isLeading) return ["this replica", `may write for ${election.leaseSeconds.toFixed(0)} s more`];
  return election.leader ? ["another", election.leader] : ["none yet", "nobody holds the lease"];
}

function showOverview(overview) {
  const { election, attempts, places } = overview;
  const at = Date.parse(overview.at) / 1000, seconds = before ? at - before.at : 0;
  const scheduled = attempts.scheduled ?? 0, tried = Object.values(attempts).reduce((sum, one) => sum + one, 0);
  if (seconds > 0.2) {
    remember("binds", Math.max(0, (scheduled - before.scheduled) / seconds));
    remember("attempts", Math.max(0, (tried - before.tried) / seconds));
    const lag = recentLag(overview.eventLoopLag, before.lag);
    if (lag !== null) remember("lag", Math.min(lag, 10) * 1000);
  }
  if (seconds > 0.2 || !before) before = { at, scheduled, tried, lag: overview.eventLoopLag };
  const pending = ["active", "backoff", "unschedulable", "gated"].reduce((sum, place) => sum + (places[place] ?? 0), 0);
  const rate = (name) => (series.get(name)?.at(-1) ?? 0).toFixed(0);
  find("identity").textContent = `${overview.version}, ${overview.profiles.join(", ")}`;
  find("tiles").replaceChildren(
    tile("Bound per second", rate("binds"), `${scheduled.toLocaleString()} in all`, series.get("binds")),
    tile("Attempts per second", rate("attempts"), `${tried.toLocaleString()} in all`, series.get("attempts")),
    tile("Pending pods", pending.toLocaleString(), `${places["in flight"]} in flight, ${places["waiting on permit"]} held at Permit`),
    tile("Cluster", `${overview.nodes.toLocaleString()} nodes`, `${overview.pods.toLocaleString()} pods, ${overview.assumedPods} being bound`),
    tile("Event-loop lag, p99", series.has("lag") ? `≤ ${rate("lag")} ms` : "", "of the last seconds", series.get("lag")),
    tile("Leader", ...leadership(election)),
  );
  showFlow(overview);
  showPlugins(overview.plugins);
}

// -- queue ------------------------------------------------------------------------------------

const HALF_WIDTH = 66, HALF_HEIGHT = 26;
const PLACES = {
  absent: [70, 125, "created"], active: [270, 125, "active"], "in flight": [470, 125, "in flight"],
  backoff: [270, 30, "backoff"], unschedulable: [670, 40, "unschedulable"], gated: [270, 220, "gated"],
  bound: [670, 215, "passed Permit"],
};

function svgElement(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  if (text !== undefined) made.textContent = text;
  return made;
}

// Where the line from another box enters the box at x, y.
function edge(x, y, dx, dy) {
  const part = Math.min(HALF_WIDTH / Math.abs(dx || 1e-9), HALF_HEIGHT / Math.abs(dy || 1e-9));
  return [x - dx * part, y - dy * part];
}

function arrow(from, to, perSecond) {
  const [x1, y1] = PLACES[from], [x2, y2] = PLACES[to], [dx, dy] = [x2 - x1, y2 - y1];
  const length = Math.hypot(dx, dy), [nx, ny] = [-dy / length, dx / length];
  const [startX, startY] = edge(x1, y1, -dx, -dy), [endX, endY] = edge(x2, y2, dx, dy);
  // Two ways between the same boxes lie side by side.
  const line = [startX + 9 * nx, startY + 9 * ny, endX + 9 * nx, endY + 9 * ny];
  const [tipX, tipY, ux, uy] = [line[2], line[3], dx / length, dy / length];
  const tip = `M${tipX - 8 * ux + 4 * nx} ${tipY - 8 * uy + 4 * ny}L${tipX} ${tipY}L${tipX - 8 * ux - 4 * nx} ${tipY - 8 * uy - 4 * ny}`;
  const text = `${perSecond.toFixed(perSecond < 10 ? 1 : 0)}/s`;
  return [
    svgElement("path", { d: `M${line[0]} ${line[1]}L${tipX} ${tipY}${tip}` }),
    svgElement("text", { x: (line[0] + tipX) / 2 + 16 * nx, y: (line[1] + tipY) / 2 + 16 * ny + 4, class: "rate" }, text),
  ];
}

function showFlow({ places, flows, flowSeconds }) {
  const arrows = [], boxes = [], sentences = [];
  for (const { from, to, pods } of flows) {
    const target = to === "absent" ? "bound" : to;
    if (!PLACES[from] || !PLACES[target] || (from === "absent" && to === "absent")) continue;
    arrows.push(...arrow(from, target, pods / flowSeconds));
    sentences.push(`${from} to ${target}: ${(pods / flowSeconds).toFixed(1)} per second`);
  }
  for (const [place, [x, y, name]] of Object.entries(PLACES)) {
    const count = places[place];
    boxes.push(svgElement("rect", { x: x - HALF_WIDTH, y: y - HALF_HEIGHT, width: 2 * HALF_WIDTH, height: 2 * HALF_HEIGHT }));
    if (count === undefined) {
      boxes.push(svgElement("text", { x, y: y + 5 }, name));
    } else {
      boxes.push(svgElement("text", { x, y: y - 2, class: "count" }, count.toLocaleString()), svgElement("text", { x, y: y + 18 }, name));
      sentences.push(`${name}: ${count} pods`);
    }
  }
  find("flow-picture").replaceChildren(...arrows, ...boxes);
  find("flow-text").textContent = sentences.join("; ");
}

// -- tables -----------------------------------------------------------------------------------

function showPlugins(plugins) {
  const time = ({ point, calls, seconds }) => `${point} ${(1e6 * seconds / calls).toFixed(0)} µs`;
  find("plugin-rows").replaceChildren(...[...plugins].sort((one, other) => other.rejectedPods - one.rejectedPods).map((one) => row([
    one.plugin, { text: one.rejectedPods || "", as: "number" }, { text: one.heldPods || "", as: "number" },
    one.points.filter(({ calls }) => calls).map(time).join(", ")])));
}

function showDecisions(decisions) {
  const looks = { scheduled: "good", unschedulable: "wait", error: "bad" };
  find("decision-rows").replaceChildren(...decisions.map((one) => row([
    clockTime(one.at), link("pod", one.pod), { text: one.result, as: looks[one.result] },
    one.node ? link("node", one.node) : one.message, { text: one.attempts, as: "number" },
    { text: `${one.feasibleNodes}/${one.evaluatedNodes}`, as: "number" },
    { text: (1000 * one.durationSeconds).toFixed(1), as: "number" }])));
}

function showPending({ pods }) {
  const rows = [], held = new Set(pods["waiting on permit"].map((one) => one.uid));
  for (const [place, some] of Object.entries(pods)) {
    for (const one of some) {
      if (place === "in flight" && held.has(one.uid)) continue;
      const reason = one.gatedBy ?? one.rejectedBy?.join(", ")
        ?? one.heldBy?.map((hold) => `${hold.plugin} until ${clockTime(hold.until)}`).join(", ") ?? "";
      rows.push(row([link("pod", one.pod), place, { text: one.priority ?? "", as: "number" },
        { text: one.attempts ?? "", as: "number" }, clockTime(one.since ?? one.heldBy?.[0]?.since), reason]));
    }
  }
  if (!rows.length) rows.push(row(["nothing is pending"]));
  find("pending-rows").replaceChildren(...rows);
}

function showGroups({ count, groups }) {
  const members = (one) => Object.entries(one.members).map(([state, pods]) => `${pods} ${state}`).join(", ");
  const rows = groups.map((one) => row([link("group", one.group), one.state, `${members(one)} (minimum ${one.minimum ?? "?"})`, one.waitsFor]));
  if (!rows.length) rows.push(row(["no groups"]));
  if (count > groups.length) rows.push(row([`and ${count - groups.length} more`]));
  find("group-rows").replaceChildren(...rows);
}

// -- nodes ------------------------------------------------------------------------------------

const details = new Details(find("details"), read);
const heatMap = new HeatMap(find("heat-map"), { onSelect: tellNode, onOpen: (node) => { location.hash = `node/${node.name}`; } });
let resources = [], nodes = [];

function percent(thousandths) {
  return thousandths < 0 ? "none" : `${Math.floor(thousandths / 10)} %`;
}

function tellNode(node) {
  const used = resources.map((name, index) => `${name} ${percent(node.used[index])}`).join(", ");
  find("node-line").textContent = `${node.name}: ${used}, ${node.pods} of ${node.allowedPods} pods${node.isCordoned ? ", cordoned" : ""}`;
}

function colourNodes() {
  const chosen = Math.max(0, resources.indexOf(find("resource").value));
  heatMap.show(nodes, (node) => node.used[chosen]);
  const offered = nodes.filter((node) => node.used[chosen] >= 0);
  const mean = offered.reduce((sum, node) => sum + node.used[chosen], 0) / Math.max(offered.length, 1);
  const full = offered.filter((node) => node.used[chosen] >= 950).length;
  find("nodes-summary").textContent = `${nodes.length.toLocaleString()} nodes, ${resources[chosen]}: ${percent(mean)} used on average, ${full.toLocaleString()} nodes above 95 %`;
}

function showNodes(found) {
  if (found.resources.join() !== resources.join()) {
    const chosen = find("resource").value;
    resources = found.resources;
    find("resource").replaceChildren(...resources.map((name) => element("option", name)));
    if (resources.includes(chosen)) find("resource").value = chosen;
  }
  nodes = found.nodes.map(([name, zone, state, pods, allowedPods, ...used]) => ({ name, zone, isCordoned: state === 1, pods, allowedPods, used }));
  nodes.sort((one, other) => (one.zone < other.zone ? -1 : one.zone > other.zone ? 1 : one.name < other.name ? -1 : 1));
  colourNodes();
}

function showScale() {
  const steps = [0, 165, 330, 500, 665, 830, 1000].map((one) => {
    const box = element("span");
    box.style.backgroundColor = colour(one, isDark());
    return box;
  });
  find("scale").replaceChildren("0 %", ...steps, "100 %");
}

// -- keys and forms ---------------------------------------------------------------------------

function pause() {
  isPaused = !isPaused;
  find("pause").setAttribute("aria-pressed", isPaused);
  find("pause").textContent = isPaused ? "Go on" : "Pause";
  if (isPaused) say("paused", true);
}

function changeTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  heatMap.repaint();
  showScale();
}

const KEYS = { p: pause, t: changeTheme, "?": () => details.keys(), "/": () => find("pod-name").focus() };

addEventListener("keydown", (event) => {
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey || find("details").open) return;
  const section = SECTIONS[Number(event.key) - 1];
  if (section) {
    find(section).focus();
    find(section).scrollIntoView();
  } else if (KEYS[event.key]) {
    KEYS[event.key]();
  } else {
    return;
  }
  event.preventDefault();
});
find("pause").addEventListener("click", pause);
find("theme").addEventListener("click", changeTheme);
find("help").addEventListener("click", () => details.keys());
find("resource").addEventListener("change", colourNodes);
find("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = find("pod-name").value.trim();
  if (name) location.hash = `pod/${name.includes("/") ? name : `default/${name}`}`;
});
find("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  token = find("token").value.trim();
  sessionStorage.setItem("token", token);
});
showScale();

keepShowing("overview", 1000, showOverview);
keepShowing("nodes", 2000, showNodes);
keepShowing("decisions?limit=60", 1000, showDecisions);
keepShowing("queue?limit=30", 2000, showPending);
keepShowing("groups?limit=100", 3000, showGroups);
details.open();
