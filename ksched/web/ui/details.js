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

const VIEWS = {
  pod: {
    path: (name) => `story/${name}`,
    *parts(story) {
      yield element("p", `${story.place}${story.node ? ` on ${story.node}` : ""}${story.assumed ? ", being bound" : ""}`);
      for (const hold of story.heldBy ?? []) {
        yield element("p", `held by ${hold.plugin} (${hold.state}) until ${clockTime(hold.until)}`);
      }
      const [namespace, pod] = story.pod.split("/");
      yield element("p", "Why, node by node, and the smallest change that would make it fit:");
      yield element("pre", `kubectl ksched explain pod/${pod} -n ${namespace}`);
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
    dialog.addEventListener("close", () => {
      if (location.hash.length > 1) history.pushState(null, "", location.pathname + location.search);
    });
    addEventListener("hashchange", () => this.open());
  }

  async open() {
    const [, kind, name] = /^#(pod|node|group)\/(.+)$/.exec(decodeURI(location.hash)) ?? [];
    if (!kind) return;
    document.getElementById("details-title").textContent = `${kind} ${name}`;
    const body = document.getElementById("details-body");
    try {
      const found = await this.read(VIEWS[kind].path(encodeURI(name)));
      body.replaceChildren(...VIEWS[kind].parts(found));
    } catch (error) {
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
