// A page as a function of the state: `h` describes elements, `patch` changes only what differs.
// So a second's update touches the cells that changed, keeps focus and scroll, and never flickers.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "path", "line", "circle", "rect", "text", "title"]);

/** An element: `h("a", {href}, "text", [more])`. `key` names it among its siblings. */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, key: props?.key, children: children.flat(Infinity).filter(shown) };
}

const shown = (child) => child !== null && child !== undefined && child !== false && child !== "";

/** Make the children of `parent` what `wanted` describes. */
export function patch(parent, wanted) {
  const list = [wanted].flat(Infinity).filter(shown);
  const known = new Map();
  let count = 0;
  for (const node of parent.childNodes) known.set(node.fifoKey ?? `#${nameOf(node)}${count++}`, node);
  let plain = 0;
  let at = parent.firstChild;
  for (const one of list) {
    const key = keyOf(one) ?? null;
    const node = take(known, key, one, () => plain++) ?? make(one, parent, key);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    if (typeof one === "object") update(node, one);
    else if (node.data !== String(one)) node.data = String(one);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

const keyOf = (one) => (typeof one === "object" && one.key !== undefined ? `=${one.tag}${one.key}` : null);
const nameOf = (node) => (node.nodeType === Node.TEXT_NODE ? "text" : node.localName);

function take(known, key, one, next) {
  // Without a key, the element in the same place among those without one, if its tag is the same.
  const name = key ?? `#${typeof one === "object" ? one.tag : "text"}${next()}`;
  const node = known.get(name);
  if (node) known.delete(name);
  return node;
}

function make(one, parent, key) {
  if (typeof one !== "object") return document.createTextNode(String(one));
  const drawn = DRAWN.has(one.tag) && (one.tag === "svg" || parent.namespaceURI === SVG);
  const node = drawn ? document.createElementNS(SVG, one.tag) : document.createElement(one.tag);
  if (key !== null) node.fifoKey = key;
  node.fifoProps = {};
  return node;
}

function update(node, one) {
  const before = node.fifoProps ?? {};
  for (const name of Object.keys(before)) if (!(name in one.props)) set(node, name, undefined);
  for (const [name, value] of Object.entries(one.props)) {
    if (before[name] !== value || name === "value" || name === "checked") set(node, name, value);
  }
  node.fifoProps = one.props;
  if (one.tag !== "textarea") patch(node, one.children);
}

function set(node, name, value) {
  if (name === "key") return;
  if (name.startsWith("on")) node[name.toLowerCase()] = value ?? null;
  else if (name === "style") {
    for (const [rule, one] of Object.entries(value ?? {})) node.style.setProperty(rule, one);
  } else if (name === "value" || name === "checked") {
    if (document.activeElement !== node && node[name] !== value) node[name] = value ?? "";
  } else if (value === undefined || value === null || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value === true ? "" : value)) {
    node.setAttribute(name, value === true ? "" : value);
  }
}
