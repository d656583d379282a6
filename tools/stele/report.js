'use strict';
// The page is complete without this script: it adds the map, search and sorting.
(() => {
  const table = document.getElementById('tensors');
  const body = table.tBodies[0];
  let rows = Array.from(body.rows, (row) => ({
    row, name: row.cells[0].textContent, bytes: Number(row.dataset.b), flagged: row.dataset.f === '1',
    tied: row.dataset.t === '1', level: row.dataset.l === undefined ? null : Number(row.dataset.l), ratio: row.dataset.d === undefined ? null : Number(row.dataset.d),
  }));
  const page = 300;
  let limit = page;
  let shown = [];

  // ---- search and sorting
  const search = document.getElementById('search');
  const only = document.getElementById('only');
  const count = document.getElementById('count');
  const more = document.getElementById('more');
  let prefix = '';

  function show() {
    for (const item of shown) item.row.classList.remove('on');
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((item) => (!only.checked || item.flagged) && item.name.startsWith(prefix) &&
                                        words.every((word) => item.name.toLowerCase().includes(word)));
    shown = found.slice(0, limit);
    for (const item of shown) item.row.classList.add('on');
    count.textContent = found.length === rows.length ? `${rows.length} tensors` : `${found.length} of ${rows.length} tensors`;
    more.hidden = found.length <= limit;
  }
  let timer = 0;
  search.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(() => { limit = page; show(); }, 80); });
  only.addEventListener('change', () => { limit = page; show(); });
  more.addEventListener('click', () => { limit += page; show(); });

  const value = (row, column) => {
    const text = row.cells[column].dataset.v ?? row.cells[column].textContent;
    const number = Number(text.replace(/[,%]/g, ''));
    return text !== '' && !Number.isNaN(number) ? number : text;
  };
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    head.addEventListener('click', () => {
      const down = head.getAttribute('aria-sort') !== 'descending';
      for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const keyed = rows.map((item) => ({item, key: value(item.row, column)}));
      const order = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === 'number' ? 1 : -1;
      keyed.sort((a, b) => (down ? -1 : 1) * order(a.key, b.key));
      rows = keyed.map((pair) => pair.item);
      const fragment = document.createDocumentFragment();
      for (const item of rows) fragment.append(item.row);
      body.append(fragment);
      limit = page;
      show();
    });
  });

  // ---- the map: a squarified treemap (Bruls, Huizing, van Wijk, 2000) of bytes by the parts of the names
  const root = {name: '', path: '', bytes: 0, children: new Map(), flagged: false, level: null, ratio: null};
  const larger = (a, b) => a === null ? b : b === null ? a : Math.max(a, b);
  for (const item of rows) {
    if (item.tied) continue;
    let node = root;
    const parts = item.name.match(/(?:\\.|[^.\\])+/g) ?? [item.name];
    const add = () => {
      node.bytes += item.bytes;
      node.flagged = node.flagged || item.flagged;
      node.level = larger(node.level, item.level);
      node.ratio = larger(node.ratio, item.ratio);
    };
    add();
    parts.forEach((part, i) => {
      const path = parts.slice(0, i + 1).join('.');
      if (!node.children.has(part)) node.children.set(part, {name: part, path, bytes: 0, children: new Map(), flagged: false, level: null, ratio: null, parent: node});
      node = node.children.get(part);
      add();
    });
  }
  const map = document.getElementById('treemap');
  const hover = document.getElementById('hover');
  const crumbs = document.getElementById('path');
  const two = table.dataset.two === '1';
  const hues = [214, 28, 142, 300, 47, 188, 350, 246];
  const hueOf = new Map();
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  function human(bytes) {
    let unit = 0;
    while (bytes >= 1024 && unit + 1 < units.length) { bytes /= 1024; ++unit; }
    return `${unit === 0 ? bytes : bytes.toFixed(1)} ${units[unit]}`;
  }
  function colour(node, depth, index, open) {
    if (two) {  // the colours of .same and .ramp in report.css; a frame has none
      if (open) return 'var(--line)';
      if (!node.level) return 'hsl(150 15% 72%)';
      return `hsl(${50 - 50 * node.level} 85% ${80 - 25 * node.level}%)`;
    }
    if (depth === 0) hueOf.set(node, hues[index % hues.length]);
    return `hsl(${hueOf.get(node)} 55% ${Math.min(82, 66 + 6 * depth)}%)`;
  }
  function squarify(nodes, x, y, w, h, place) {
    const total = nodes.reduce((sum, node) => sum + node.bytes, 0);
    if (total === 0 || w <= 0 || h <= 0) return;
    const scale = w * h / total;
    let i = 0;
    while (i < nodes.length) {
      const side = Math.min(w, h);
      let sum = 0, best = Infinity, end = i;
      for (let j = i; j < nodes.length; ++j) {
        const next = sum + nodes[j].bytes * scale;
        if (next <= 0) break;
        const worst = Math.max(side * side * nodes[i].bytes * scale / (next * next), next * next / (side * side * nodes[j].bytes * scale));
        if (worst > best) break;
        best = worst; sum = next; end = j + 1;
      }
      if (end === i) break;
      const depth = sum / side;
      let at = 0;
      for (; i < end; ++i) {
        const length = nodes[i].bytes * scale / depth;
        if (w >= h) place(nodes[i], x, y + at, depth, length); else place(nodes[i], x + at, y, length, depth);
        at += length;
      }
      if (w >= h) { x += depth; w -= depth; } else { y += depth; h -= depth; }
    }
  }
  let cells = 0;
  function draw(node, x, y, w, h, depth, into) {
    const next = node.children.size > 1 ? depth + 1 : depth;
    const children = Array.from(node.children.values()).filter((child) => child.bytes > 0).sort((a, b) => b.bytes - a.bytes);
    let index = 0;
    squarify(children, x, y, w, h, (child, left, top, width, height) => {
      if (depth > 0) hueOf.set(child, hueOf.get(node));
      const marked = child.flagged || (two && child.level);  // is seen even if it is tiny
      if (((width < 2 || height < 2) && !marked) || ++cells > 1500) return;
      if (marked) { width = Math.max(width, 5); height = Math.max(height, 5); }
      const cell = document.createElement('div');
      const open = child.children.size > 0 && depth < 2 && width > 30 && height > 34;
      cell.style.cssText = `left:${left}px;top:${top}px;width:${width}px;height:${height}px;background:${colour(child, depth, index++, open)}`;
      cell.classList.toggle('frame', two && open);
      const text = `${child.path}: ${human(child.bytes)}` + (child.flagged ? ', flagged' : '') +
                   (child.ratio ? `, differs by up to ${Number((100 * child.ratio).toPrecision(2))}% of the largest number` : '');
      cell.title = text;
      if (width > 40 && height > 15) cell.textContent = child.name;
      if (child.flagged && child.children.size === 0) cell.classList.add('flagged');
      if (marked && !open) cell.style.zIndex = 1;
      if (child.children.size > 0) cell.classList.add('inner');
      cell.addEventListener('mouseenter', () => { hover.textContent = text; });
      cell.addEventListener('click', (event) => {
        event.stopPropagation();
        const inner = child.children.size > 0 ? child : node;
        if (inner !== current) zoom(inner);
      });
      into.append(cell);
      if (open) draw(child, left + 2, top + 18, width - 4, height - 20, next, into);
    });
  }
  let current = root;
  function zoom(node) {
    current = node;
    prefix = node === root ? '' : node.path + '.';
    crumbs.textContent = '';
    for (let at = node; at; at = at.parent) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = at === root ? 'all' : at.name;
      button.addEventListener('click', () => zoom(at));
      crumbs.prepend(button);
    }
    map.textContent = '';
    cells = 0;
    draw(node, 0, 0, map.clientWidth, map.clientHeight, 0, map);
    hover.textContent = `${node.path || 'all'}: ${human(node.bytes)}`;
    limit = page;
    show();
  }
  let resized = 0;
  window.addEventListener('resize', () => { clearTimeout(resized); resized = setTimeout(() => zoom(current), 150); });
  zoom(root);
  document.documentElement.dataset.ready = '1';
})();
