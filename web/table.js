// A table whose rows are kept and can be sorted, and kinds of cells.

import { at, attribute, html, Keyed, svg, text } from "./dom.js";

/**
 * A table whose rows are kept. A column has a `title`, and `value(item)`: a text, or a function that
 * writes the cell. `sort(item)` makes it sortable. `key(item)` identifies a row.
 */
export class Table {
  constructor(id, caption, columns, key) {
    this.columns = columns;
    this.key = key;
    const node = at(id);
    const heads = columns.map((column) => {
      const head = html("th", { scope: "col", class: column.number ? "number" : "" });
      if (column.sort) {
        const button = html("button", { type: "button" }, column.title);
        button.addEventListener("click", () => this.sortBy(column));
        head.append(button);
      } else {
        head.append(column.title);
      }
      column.head = head;
      return head;
    });
    const body = html("tbody");
    node.replaceChildren(
      html("caption", { class: "hidden" }, caption),
      html("thead", {}, html("tr", {}, ...heads)),
      body,
    );
    this.rows = new Keyed(body, () => this.row());
  }

  row() {
    const cells = this.columns.map((column, i) => {
      const name = i === 0 ? "th" : "td";
      const cell = html(name, { class: [column.number ? "number" : "", column.class ?? ""].join(" ").trim() });
      if (i === 0) cell.setAttribute("scope", "row");
      return cell;
    });
    return { node: html("tr", {}, ...cells), cells };
  }

  /** Sorts by a column from now on, again by it: the order of the document. */
  sortBy(column) {
    this.sorted = this.sorted === column ? null : column;
    for (const each of this.columns) {
      attribute(each.head, "aria-sort", each === this.sorted ? (each.number ? "descending" : "ascending") : null);
    }
    this.show(this.items);
  }

  show(items) {
    this.items = items;
    let shown = items;
    if (this.sorted) {
      const { sort, number } = this.sorted;
      shown = [...items].sort((a, b) => number ? sort(b) - sort(a) : sort(a).localeCompare(sort(b), "en", { numeric: true }));
    }
    this.rows.show(shown, this.key, ({ cells }, item) => {
      this.columns.forEach((column, i) => {
        const value = column.value(item);
        if (typeof value === "string") text(cells[i], value);
        else value(cells[i]);
      });
    });
  }
}

/** A bar of shares of one; each with a class and a title. */
export function bar(shares) {
  return (cell) => {
    let picture = cell.firstElementChild;
    if (picture === null) {
      picture = svg("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
      cell.append(picture);
    }
    while (picture.childElementCount < shares.length) {
      picture.append(svg("rect", { y: 0, height: 8 }));
    }
    let x = 0;
    shares.forEach(({ share, name }, i) => {
      const width = Math.max(0, Math.min(100 - x, 100 * share));
      const part = picture.children[i];
      attribute(part, "class", name);
      attribute(part, "x", x.toFixed(1));
      attribute(part, "width", width.toFixed(1));
      x += width;
    });
  };
}

/** A sentence whose commands stand between backquotes. */
export function sentence(words) {
  return (cell) => {
    if (cell.dataset.words === words) return;
    cell.dataset.words = words;
    cell.replaceChildren(...words.split("`").map((part, i) => i % 2 ? html("code", {}, part) : part));
  };
}
