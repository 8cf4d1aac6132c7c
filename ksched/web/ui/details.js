// The dialog about one pod, node or group. Its address is in the fragment: #pod/namespace/name.

export function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

export function link(kind, name) {
  const made = element("a", name);
  made.href = `#${kind}/${name}`;
  return made;
}

export function row(cells) {
  const made = element("tr");
  for (const cell of cells) {
    const isPlain = typeof cell !== "object" || cell === null;
    const box = isPlain ? element("td", cell ?? "") : cell instanceof Node ? element("td") : element("td", cell.text, cell.as);
    if (cell instanceof Node) box.append(cell);
    made.append(box);
  }
  return made;
}

export function clockTime(text) {
  return text ? new Date(text).toLocaleTimeString([], { hour12: false }) : "";
}

function table(heads, rows) {
  const head = element("tr");
  heads.forEach((text) => {
    const cell = element("th", text);
    cell.scope = "col";
    head.append(cell);
  });
  const made = element("table"), top = element("thead"), body = element("tbody");
  top.append(head);
  body.append(...rows);
  made.append(top, body);
  const frame = element("div", undefined, "scroll");
  frame.append(made);
  return frame;
}

function amounts(requests) {
  return Object.entries(requests).map(([name, amount]) => `${name} ${amount}`).join(", ");
}

const EXPLAIN_MS = 60_000;

// Asks for the explanation of a pod: at once if it is pending, else when the button is pressed.
function explanation(story, read) {
  const frame = element("div"), answer = element("div"), button = element("button", "Explain why it is there");
  const explain = async () => {
    button.disabled = true;
    answer.replaceChildren(element("p", "The pod is judged on a copy of the cluster, this takes some seconds.", "quiet"));
    try {
      answer.replaceChildren(...explained(await read(`explain/${encodeURI(story.pod)}`, EXPLAIN_MS)));
    } catch (error) {
      if (error.name === "AbortError") return;
      answer.replaceChildren(element("p", error.message, "bad"));
    }
    button.textContent = "Explain again";
    button.disabled = false;
  };
  button.type = "button";
  button.addEventListener("click", explain);
  answer.className = "explanation";
  answer.setAttribute("role", "status");
  frame.append(answer, button);
  if (!story.node) explain();
  return frame;
}

function* explained(found) {
  for (const line of found.headline.split("\n")) yield element("p", line);
  for (const gate of found.gates) yield element("p", `gated by ${gate}`);
  if (found.nominatedNode) yield element("p", `nominated to ${found.nominatedNode}`);
  if (found.message) yield element("p", found.message, "quiet");
  if (found.changes.length) {
    yield element("h4", "Each of these would make it fit");
    yield table(["Change", "On", "What"], found.changes.map((one) => row([
      one.kind, few(one.nodes, one.nodes.length), `${one.steps.join("; ")}${one.isSmallest ? "" : " (fewer may do)"}`])));
  } else if (!found.node && !found.feasibleCount && found.nodeCount) {
    yield element("p", "No change of the pod or of one node and no evictions there would make it fit.");
  }
  if (found.preemption) {
    yield element("p", `Preemption would evict ${found.preemption.victims.join(", ")} from ${found.preemption.node} and nominate the pod to it.`);
  }
  if (found.rejected.length) {
    yield element("h4", "Nodes that do not fit");
    yield table(["Nodes", "Plugin", "Reason", "Examples"], found.rejected.flatMap((group) => group.rejections.map((one, index) => row([
      index ? "also" : group.count, one.plugin || "-", one.reasons.join(", "), index ? "" : few(group.examples, group.count)]))));
  }
  if (found.best.length) {
    const plugins = Object.keys(found.best[0].scores).filter((name) => found.best.some((one) => one.scores[name]));
    yield element("h4", `Nodes that fit, the best ${found.best.length} of ${found.feasibleCount}`);
    yield table(["Node", "Score", ...plugins], found.best.map((one) => row([
      link("node", one.node), one.total, ...plugins.map((name) => one.scores[name])])));
  }
  for (const note of found.notes) yield element("p", `note: ${note}`, "quiet");
}

// Links to some nodes; an ellipsis stands for the rest.
function few(nodes, count) {
  const made = element("span"), shown = nodes.slice(0, 3);
  shown.forEach((name, index) => made.append(index ? ", " : "", link("node", name)));
  if (count > shown.length) made.append(", …");
  return made;
}

const VIEWS = {
  pod: {
    path: (name) => `story/${name}`,
    *parts(story, read) {
      yield element("p", `${story.place}${story.node ? ` on ${story.node}` : ""}${story.assumed ? ", being bound" : ""}`);
      for (const hold of story.heldBy ?? []) {
        yield element("p", `held by ${hold.plugin} (${hold.state}) until ${clockTime(hold.until)}`);
      }
      yield element("h3", "Why");
      yield explanation(story, read);
      const [namespace, pod] = story.pod.split("/");
      yield element("p", "Every node:");
      yield element("pre", `kubectl ksched explain pod/${pod} -n ${namespace} -o wide`);
      if (story.decisions.length) {
        yield element("h3", "Decisions");
        yield table(["Time", "Result", "Node or reason", "Nodes that fit"], [...story.decisions].reverse().map((one) => row([
          clockTime(one.at), one.result, one.node || one.message, `${one.feasibleNodes} of ${one.evaluatedNodes}`])));
      }
      yield element("h3", "Its way through the queue");
      yield table(["Time", "From", "To", "Cause"], story.transitions.map((one) => row([
        clockTime(one.at), one.from, one.to, `${one.cause} ${one.detail}`])));
    },
  },
  node: {
    path: (name) => `nodes/${name}?limit=500`,
    *parts(node) {
      yield element("p", `${node.zone || "no zone"}, ${node.podCount} of ${node.allowedPods} pods${node.unschedulable ? ", cordoned" : ""}`);
      if (node.taints.length) yield element("p", `taints: ${node.taints.join(", ")}`);
      yield table(["Resource", "Requested", "Allocatable", "Used"], node.resources.map((one) => row([
        one.resource, one.requested, one.allocatable, `${Math.floor(100 * one.requested / one.allocatable)} %`])));
      yield element("h3", "Pods");
      yield table(["Pod", "Priority", "Requests"], node.pods.map((one) => row([
        link("pod", one.pod), one.priority, amounts(one.requests)])));
    },
  },
  group: {
    path: (name) => `groups/${name}?limit=500`,
    *parts(found) {
      for (const group of found.groups) {
        yield element("p", `${group.state}, minimum ${group.minimum ?? "unknown"} (${group.dialect}). ${group.waitsFor}`);
        yield table(["Pod", "Role", "State", "Node"], group.pods.map((one) => row([
          link("pod", one.pod), one.role, one.state, one.node ? link("node", one.node) : ""])));
      }
    },
  },
};

export class Details {
  constructor(dialog, read) {
    this.dialog = dialog;
    this.read = read;
    this.leaving = new AbortController();
    dialog.addEventListener("close", () => {
      this.leaving.abort();
      if (location.hash.length > 1) history.pushState(null, "", location.pathname + location.search);
    });
    addEventListener("hashchange", () => this.open());
  }

  // Reads until the dialog is closed or shows something else.
  reader() {
    this.leaving.abort();
    this.leaving = new AbortController();
    const { signal } = this.leaving;
    return (path, timeoutMs) => this.read(path, timeoutMs, signal);
  }

  async open() {
    const [, kind, name] = /^#(pod|node|group)\/(.+)$/.exec(decodeURI(location.hash)) ?? [];
    if (!kind) return;
    document.getElementById("details-title").textContent = `${kind} ${name}`;
    const body = document.getElementById("details-body"), read = this.reader();
    try {
      const found = await read(VIEWS[kind].path(encodeURI(name)));
      body.replaceChildren(...VIEWS[kind].parts(found, read));
    } catch (error) {
      if (error.name === "AbortError") return;
      body.replaceChildren(element("p", error.message, "bad"));
    }
    if (!this.dialog.open) this.dialog.showModal();
  }

  keys() {
    document.getElementById("details-title").textContent = "Keys";
    const keys = [["1 to 6", "go to a section"], ["/", "look for a pod"], ["p", "pause and go on"],
      ["t", "light or dark"], ["arrows, Enter", "on the nodes: move, open"], ["Esc", "close this"], ["?", "this"]];
    document.getElementById("details-body").replaceChildren(table(["Key", "What it does"], keys.map(row)));
    if (!this.dialog.open) this.dialog.showModal();
  }
}
