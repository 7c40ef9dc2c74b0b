// Changes of the page: a node is kept, and only what differs is written.

const SVG = "http://www.w3.org/2000/svg";

/** The element with an ID. */
export const at = (id) => document.getElementById(id);

/** A new element with attributes and children; a child is a node or a text. */
export function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** A new SVG element, likewise. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Sets the text of a node that has no other contents. */
export function text(node, value) {
  const only = node.firstChild;
  if (only === null) {
    if (value !== "") node.append(value);
  } else if (only.data !== value) {
    only.data = value;
  }
}

/** Sets an attribute; null removes it. */
export function attribute(node, name, value) {
  if (value === null) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, value);
  }
}

/** Children of a node by key, in the order of the last list; those that are not in it are removed. */
export class Keyed {
  #parent;
  #make;
  #nodes = new Map();
  #order = "";

  /** `make(item)` returns an object with `node`. */
  constructor(parent, make) {
    this.#parent = parent;
    this.#make = make;
  }

  /** Calls `update(object, item)` for each item; `key(item)` identifies it. */
  show(items, key, update) {
    const keys = new Set();
    for (const item of items) {
      const name = key(item);
      keys.add(name);
      let object = this.#nodes.get(name);
      if (object === undefined) {
        object = this.#make(item);
        this.#nodes.set(name, object);
      }
      update(object, item);
    }
    for (const [name, object] of this.#nodes) {
      if (keys.has(name)) continue;
      object.node.remove();
      this.#nodes.delete(name);
    }
    const order = [...keys].join("\n");
    if (order === this.#order) return;
    this.#order = order;
    let before = null;
    for (const name of [...keys].reverse()) {
      const { node } = this.#nodes.get(name);
      if (node.parentNode !== this.#parent || node.nextSibling !== before) {
        this.#parent.insertBefore(node, before);
      }
      before = node;
    }
  }
}
