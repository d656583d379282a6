'use strict';
// The viewer's page. Text of files goes into the document by textContent only.
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (tag, className = '', text = '') => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== '') element.textContent = shown(text);
    return element;
  };
  /** Text without characters that change the direction of other text, or that are not seen. */
  const shown = (text) => String(text).replace(/[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ',');
  const counted = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? '' : 's'}`;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  function human(bytes) {
    let unit = 0;
    while (bytes >= 1024 && unit + 1 < units.length) { bytes /= 1024; ++unit; }
    return `${unit === 0 ? bytes : bytes.toFixed(1)} ${units[unit]}`;
  }
  function short(number, digits = 6) {
    if (number === null || number === undefined) return '';
    if (Number.isInteger(number) && Math.abs(number) < 1e6) return String(number);
    const rounded = Number(number.toPrecision(digits));
    return Math.abs(rounded) < 1e-3 ? rounded.toExponential().replace('e+0', '') : String(rounded);
  }

  // ---- the worker

  let module = null;  // a promise of the compiled module
  let worker = null;
  let waiting = new Map();
  let lastId = 0;
  let bytesRead = 0, memory = 0;
  const inputs = new Map();  // of open models, for another worker

  function started() {
    if (worker !== null) return worker;
    module ??= fetch('stele.wasm').then((response) => {
      if (!response.ok) throw new Error(`stele.wasm is missing beside this page (status ${response.status})`);
      return response.arrayBuffer();
    }).then((bytes) => WebAssembly.compile(bytes));
    const url = URL.createObjectURL(new Blob([$('worker').textContent], {type: 'text/javascript'}));
    worker = new Worker(url, {type: 'module'});
    URL.revokeObjectURL(url);
    worker.onerror = (event) => stop(new Error(event.message || 'the worker has ended'));
    worker.onmessage = ({data}) => {
      const call = waiting.get(data.id);
      if (call === undefined) return;
      if (data.progress !== undefined) return call.progress?.(data.progress);
      waiting.delete(data.id);
      if (data.read !== undefined) bytesRead = data.read + readBefore;
      if (data.memory !== undefined) memory = data.memory;
      if (data.error) call.fail(Object.assign(new Error(data.error.message), data.error)); else call.done(data.result);
    };
    const own = worker;
    const ready = module.then((compiled) => post(own, {call: 'start', module: compiled}));
    worker.ready = Promise.all([ready, ...Array.from(inputs, ([key, input]) => ready.then(() => post(own, {call: 'open', key, ...input})))]);
    worker.ready.catch(() => {});
    return worker;
  }
  const post = (to, message, progress) => new Promise((done, fail) => {
    const id = ++lastId;
    waiting.set(id, {done, fail, progress});
    to.postMessage({id, ...message});
  });
  async function ask(call, values, progress) {
    const to = started();
    await to.ready;
    if (to !== worker) throw cancelled();
    return post(to, {call, ...values}, progress);
  }
  const cancelled = () => Object.assign(new Error('cancelled'), {cancelled: true});
  let readBefore = 0;
  /** Ends what the worker does; the next call starts another one, which opens the models again. */
  function stop(error = cancelled()) {
    worker?.terminate();
    worker = null;
    readBefore = bytesRead;
    const ended = waiting;
    waiting = new Map();
    for (const call of ended.values()) call.fail(error);
  }

  // ---- one task at a time, with a bar

  let task = 0;
  async function run(what, total, work) {
    const own = ++task;
    stop_others();
    $('failed').hidden = true;
    $('busy').hidden = false;
    $('doing').textContent = shown(what);
    const bar = $('progress');
    bar.removeAttribute('value');
    let base = 0;
    const progress = (done) => { if (own === task && total > 0) bar.value = Math.min(1, (base + done) / total); };
    progress.add = (done) => { base += done; progress(0); };
    try {
      return await work(progress, () => own !== task);
    } catch (error) {
      if (!error.cancelled) fail(`Cannot ${what.charAt(0).toLowerCase()}${what.slice(1)}`, error);
      return undefined;
    } finally {
      if (own === task) $('busy').hidden = true;
      foot();
    }
  }
  function stop_others() { if (waiting.size > 0) stop(); }
  function fail(what, error) {
    $('failed').hidden = false;
    $('failed-what').textContent = shown(what);
    $('failed-text').textContent = shown(error.message);
  }
  $('cancel').addEventListener('click', () => { ++task; stop(); $('busy').hidden = true; });

  // ---- opening

  const a = 'a', b = 'b';
  let model = null;  // {name, description, rows}
  let other = null;

  /** `input`: {files: [{name, file}], folder} or {url}. */
  const label = (input) => input.url !== undefined ? input.url.split(/[?#]/)[0] : input.folder ? input.files[0].path.split('/')[0] : input.files[0].name;
  const size = (input) => input.url !== undefined ? null : input.files.reduce((sum, {file}) => sum + file.size, 0);

  async function open(input) {
    const description = await run(`Open ${label(input)}`, 0, async () => {
      if (inputs.size > 0) stop();
      inputs.clear();
      bytesRead = readBefore = 0;
      const began = performance.now();
      const found = await ask('open', {key: a, ...input});
      return Object.assign(found, {seconds: (performance.now() - began) / 1000});
    });
    if (description === undefined) return;
    inputs.set(a, input);
    other = null;
    show(input, description);
  }

  async function compare(input) {
    const total = model.description.total.bytes;
    const found = await run(`Compare with ${label(input)}`, total, async (progress) => {
      inputs.delete(b);
      await ask('close', {key: b});
      const description = await ask('open', {key: b, ...input});
      inputs.set(b, input);
      return {description, differences: await ask('diff', {a, b}, progress)};
    });
    if (found === undefined) return;
    other = {name: label(input), ...found};
    show_differences();
  }

  const given = (list) => {
    const files = Array.from(list, (file) => ({file, path: file.webkitRelativePath || file.name}));
    const folder = files.length > 1 || files.some(({file}) => file.webkitRelativePath);
    return {folder, files: files.map(({file, path}) => ({file, path, name: folder && path.includes('/') ? path.slice(path.indexOf('/') + 1) : path}))};
  };
  /** A folder of one file that is no model's index is the file. */
  async function dropped(transfer) {
    const entries = Array.from(transfer.items, (item) => item.webkitGetAsEntry?.()).filter(Boolean);
    if (!entries.some((entry) => entry.isDirectory)) return transfer.files.length > 0 ? given(transfer.files) : null;
    const files = [];
    async function walk(entry, before) {
      if (files.length >= 100000) throw new Error('the folder has more than 100,000 files');
      if (entry.isFile) {
        const file = await new Promise((done, failed) => entry.file(done, failed));
        files.push({file, path: before + entry.name});
        return;
      }
      const reader = entry.createReader();
      for (;;) {
        const some = await new Promise((done, failed) => reader.readEntries(done, failed));
        if (some.length === 0) return;
        for (const one of some) await walk(one, `${before}${entry.name}/`);
      }
    }
    for (const entry of entries) await walk(entry, '');
    const root = entries.length === 1;
    return {folder: true, files: files.map(({file, path}) => ({file, path, name: root ? path.slice(path.indexOf('/') + 1) : path}))};
  }

  let take = open;
  for (const [button, input, then] of [['choose', 'file', open], ['choose-folder', 'folder', open], ['compare', 'file', compare], ['compare-folder', 'folder', compare]]) {
    $(button).addEventListener('click', () => { take = then; $(input).click(); });
  }
  for (const input of ['file', 'folder']) {
    $(input).addEventListener('change', () => {
      const files = Array.from($(input).files);
      $(input).value = '';
      if (files.length > 0) take(given(files));
    });
  }
  $('by-url').addEventListener('submit', (event) => {
    event.preventDefault();
    const url = $('url').value.trim();
    if (!URL.canParse(url)) return fail(`Cannot open ${url}`, new Error('this is no address; https://… is'));
    open({url});
  });
  $('another').addEventListener('click', () => {
    stop();
    inputs.clear();
    model = other = null;
    location.hash = '';
    document.title = 'stele viewer';
    $('title').textContent = 'What is in this model?';
    $('sub').textContent = 'Tensors, numbers and metadata of safetensors, GGUF, PyTorch, ONNX, Keras, NumPy and .stele files.';
    for (const id of ['model', 'failed', 'busy']) $(id).hidden = true;
    $('start').hidden = false;
  });
  addEventListener('dragover', (event) => { event.preventDefault(); $('drop').classList.add('over'); });
  addEventListener('dragleave', () => $('drop').classList.remove('over'));
  addEventListener('drop', async (event) => {
    event.preventDefault();
    $('drop').classList.remove('over');
    try {
      const input = await dropped(event.dataTransfer);
      if (input !== null) open(input);
    } catch (error) {
      fail('Cannot open the folder', error);
    }
  });

  // ---- a table of any number of rows, of which only the visible ones are in the document

  class Rows {
    /** `columns`: {title, className, order(row), fill(cell, row)}. */
    constructor(element, columns, options = {}) {
      this.element = element;
      this.columns = columns;
      this.rows = [];
      this.options = options;
      element.textContent = '';
      this.head = element.appendChild(make('div', 'head'));
      this.head.setAttribute('role', 'row');
      for (const column of columns) {
        const title = this.head.appendChild(make('span', `${column.className ?? ''} cell`, column.title));
        title.setAttribute('role', 'columnheader');
        if (!column.order) continue;
        title.tabIndex = 0;
        title.classList.add('sorts');
        const sort = () => options.sort?.(column);
        title.addEventListener('click', sort);
        title.addEventListener('keydown', (event) => { if (event.key === 'Enter') sort(); });
      }
      this.body = element.appendChild(make('div', 'body'));
      this.pool = new Map();
      element.setAttribute('role', 'table');
      element.onscroll = () => this.draw();
      new ResizeObserver(() => this.draw()).observe(element);
    }
    show(rows, keep = false) {
      this.rows = rows;
      this.element.setAttribute('aria-rowcount', String(rows.length));
      if (!keep) this.element.scrollTop = 0;
      this.redraw();
    }
    redraw() {
      for (const element of this.pool.values()) element.remove();
      this.pool.clear();
      this.draw();
    }
    draw() {
      const height = Number.parseFloat(getComputedStyle(this.element).getPropertyValue('--row'));
      this.body.style.height = `${this.rows.length * height}px`;
      this.element.classList.toggle('short', this.rows.length * height < 300);
      const first = Math.max(0, Math.floor(this.element.scrollTop / height) - 8);
      const last = Math.min(this.rows.length, first + Math.ceil(this.element.clientHeight / height) + 16);
      for (const [i, element] of this.pool) {
        if (i >= first && i < last) continue;
        element.remove();
        this.pool.delete(i);
      }
      for (let i = first; i < last; ++i) {
        if (this.pool.has(i)) continue;
        const row = this.rows[i];
        const element = make('div', 'row');
        element.setAttribute('role', 'row');
        element.style.transform = `translateY(${i * height}px)`;
        for (const column of this.columns) {
          const cell = element.appendChild(make('span', `${column.className ?? ''} cell`));
          cell.setAttribute('role', 'cell');
          cell.dataset.title = column.title;
          column.fill(cell, row);
        }
        this.options.row?.(element, row);
        this.body.append(element);
        this.pool.set(i, element);
      }
    }
    sorted(column, down) {
      Array.from(this.head.children).forEach((title, i) => {
        if (this.columns[i] === column) title.setAttribute('aria-sort', down ? 'descending' : 'ascending'); else title.removeAttribute('aria-sort');
      });
    }
  }

  // ---- a model

  const dtype = (tensor) => tensor.composite ? tensor.composite.scheme : tensor.dtype;
  const bytes = (tensor) => tensor.composite ? tensor.composite.bytes : tensor.bytes;
  const shape = (tensor) => `[${tensor.shape.join(', ')}]`;

  function flags(facts) {
    if (!facts) return '';
    if (facts.damaged) return 'damaged';
    const s = facts.statistics;
    return [s.nan ? `${grouped(s.nan)} NaN` : '', s.inf ? `${grouped(s.inf)} inf` : '', facts.count > 1 && s.zeros === facts.count ? 'all zero' : ''].filter(Boolean).join(', ');
  }

  function histogram(bins) {
    const space = 'http://www.w3.org/2000/svg';
    const svg = document.createElementNS(space, 'svg');
    svg.setAttribute('class', 'h');
    svg.setAttribute('viewBox', `0 0 ${2 * bins.length} 20`);
    svg.setAttribute('preserveAspectRatio', 'none');
    const most = Math.max(1, ...bins);
    const path = document.createElementNS(space, 'path');
    path.setAttribute('d', `M0 20${bins.map((bin) => `V${20 - (bin === 0 ? 0 : Math.max(1, Math.round(bin / most * 20)))}h2`).join('')}V20z`);
    svg.append(path);
    return svg;
  }

  const statistic = (title, key) => ({
    title, className: 'r stat', order: (row) => row.facts?.statistics?.[key] ?? -Infinity,
    fill(cell, row) { cell.textContent = row.facts?.statistics && row.facts.count ? short(row.facts.statistics[key], 4) : ''; },
  });
  const columns = [
    {title: 'name', className: 'n', order: (row) => row.tensor.name, fill(cell, row) {
      cell.textContent = shown(row.tensor.name);
      cell.title = shown(row.tensor.name);
      if (row.tensor.tied) cell.append(make('span', 'dim', ' (tied)'));
    }},
    {title: 'dtype', className: 'm', order: (row) => dtype(row.tensor), fill(cell, row) { cell.textContent = shown(dtype(row.tensor)); }},
    {title: 'shape', className: 'm', order: (row) => row.tensor.elements, fill(cell, row) { cell.textContent = shape(row.tensor); cell.title = `${shape(row.tensor)}: ${counted(row.tensor.elements, 'element')}`; }},
    {title: 'bytes', className: 'r', order: (row) => bytes(row.tensor), fill(cell, row) { cell.textContent = grouped(bytes(row.tensor)); }},
    {title: 'histogram', className: 'stat hist', fill(cell, row) { if (row.facts?.histogram) cell.append(histogram(row.facts.histogram)); }},
    statistic('min', 'min'), statistic('max', 'max'), statistic('mean', 'mean'), statistic('std', 'std'),
    {title: 'flags', className: 'flag', order: (row) => flags(row.facts), fill(cell, row) { cell.textContent = flags(row.facts); cell.title = row.facts?.damaged ? shown(row.facts.damaged) : flags(row.facts); }},
  ];
  let order = {column: null, down: false};
  let prefix = '';
  let selected = null;
  let filtered = [];
  const table = new Rows($('tensors'), columns, {
    sort(column) { sort(column, order.column === column ? !order.down : column.title !== 'name' && column.title !== 'dtype'); },
    row(element, row) {
      element.tabIndex = 0;
      element.classList.toggle('selected', row === selected);
      element.addEventListener('click', () => select(row));
      element.addEventListener('keydown', (event) => { if (event.key === 'Enter') select(row); });
    },
  });
  function sort(column, down) {
    order = {column, down};
    table.sorted(column, down);
    $('order').value = column ? `${column.title}${down ? ' down' : ''}` : '';
    filter();
  }
  for (const [value, text] of [['', 'order of the file'], ['name', 'by name'], ['bytes down', 'largest first'], ['bytes', 'smallest first'], ['dtype', 'by dtype']]) {
    const option = $('order').appendChild(make('option', '', text));
    option.value = value;
  }
  $('order').addEventListener('change', () => {
    const [title, down] = $('order').value.split(' ');
    sort(columns.find((column) => column.title === title) ?? null, down !== undefined);
  });

  function filter(keep = false) {
    const words = $('search').value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = $('dtypes').value;
    filtered = model.rows.filter((row) => (prefix === '' || row.tensor.name === prefix || row.tensor.name.startsWith(`${prefix}.`)) &&
      (wanted === '' || dtype(row.tensor) === wanted) && (!$('only').checked || flags(row.facts) !== '') && words.every((word) => row.lower.includes(word)));
    if (order.column !== null) {
      const keyed = filtered.map((row) => ({row, key: order.column.order(row)}));
      const sign = order.down ? -1 : 1;
      keyed.sort((x, y) => x.key < y.key ? -sign : x.key > y.key ? sign : 0);
      filtered = keyed.map(({row}) => row);
    }
    table.show(filtered, keep);
    const all = model.rows.length;
    $('count').textContent = filtered.length === all ? counted(all, 'tensor') : `${grouped(filtered.length)} of ${counted(all, 'tensor')}`;
    $('statistics').textContent = filtered.length === all ? 'Statistics of all' : 'Statistics of these';
  }
  let timer = 0;
  $('search').addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(filter, 80); });
  $('dtypes').addEventListener('change', () => filter());
  $('only').addEventListener('change', () => filter());

  function bar(element, legend, shares, total) {
    element.textContent = legend.textContent = '';
    shares.forEach(([name, totals], i) => {
      const part = element.appendChild(make('i', `c${i % 8}`));
      part.style.width = `${total === 0 ? 0 : 100 * totals.bytes / total}%`;
      const item = legend.appendChild(make('li'));
      item.append(make('i', `c${i % 8}`), shown(`${name}: ${human(totals.bytes)}, ${counted(totals.tensors, 'tensor')}`));
    });
  }
  const card = (number, what, className = '') => {
    const element = $('cards').appendChild(make('div', 'card'));
    element.append(make('b', className, number), make('span', '', what));
  };

  function foot() {
    if (model === null) return;
    const whole = size(inputs.get(a) ?? {url: ''});
    $('foot').textContent = `Read ${human(bytesRead)}${whole === null || bytesRead > whole ? '' : ` of ${human(whole)}`}; the reader takes ${human(memory)} of memory. Nothing leaves the browser.`;
    Object.assign(document.documentElement.dataset, {read: bytesRead, memory});
  }

  function show(input, description) {
    model = {name: label(input), description, rows: description.tensors.map((tensor, index) => ({tensor, index, lower: tensor.name.toLowerCase(), facts: null}))};
    document.title = shown(`${model.name} – stele viewer`);
    $('title').textContent = shown(model.name);
    const whole = size(input);
    $('sub').textContent = `${description.format}${whole === null ? '' : `, ${human(whole)}`}, opened in ${description.seconds < 1 ? `${Math.max(1, Math.round(description.seconds * 1000))} ms` : `${description.seconds.toFixed(1)} s`}`;
    $('start').hidden = $('failed').hidden = $('diff').hidden = $('detail').hidden = true;
    $('digest').textContent = $('search').value = '';
    $('only').checked = false;
    order = {column: null, down: false};
    table.sorted(null, false);
    $('order').value = prefix = '';
    selected = null;
    $('model').hidden = false;
    $('cards').textContent = '';
    const {total} = description;
    const names = model.rows.length;
    card(grouped(total.tensors), names === total.tensors ? 'tensors' : `tensors with ${grouped(names)} names`);
    card(grouped(total.elements), 'elements');
    card(human(total.bytes), 'of tensors');
    card(String(Object.keys(description.by_dtype).length), Object.keys(description.by_dtype).length === 1 ? 'dtype' : 'dtypes');
    $('notes').textContent = '';
    for (const note of description.notes ?? []) $('notes').append(make('p', 'note', note));
    const shares = Object.entries(description.by_dtype).sort((x, y) => y[1].bytes - x[1].bytes);
    bar($('dtype-bar'), $('dtype-legend'), shares, total.bytes);
    $('dtypes').textContent = '';
    $('dtypes').append(make('option', '', 'every dtype'));
    $('dtypes').firstChild.value = '';
    for (const [name] of shares) {
      const option = $('dtypes').appendChild(make('option', '', name));
      option.value = name;
    }
    $('dtypes').value = '';
    metadata(description);
    tree();
    filter();
    foot();
    document.documentElement.dataset.ready = String(Number(document.documentElement.dataset.ready ?? 0) + 1);
  }

  function metadata({metadata: texts, properties, origin, values}) {
    const body = $('metadata');
    body.textContent = '';
    const lines = [...Object.entries(origin ?? {}), ...Object.entries(texts)];
    for (const [key, value] of Object.entries(properties ?? {})) {
      if (typeof value === 'string') continue;
      const long = Array.isArray(value) && value.length > 8;
      lines.push([key, JSON.stringify(long ? value.slice(0, 8) : value) + (long ? ` … ${grouped(value.length)} in all` : '')]);
    }
    for (const [key, value] of Object.entries(values ?? {}).slice(0, 1000)) lines.push([key, JSON.stringify(value)]);
    for (const [key, value] of lines) {
      const row = body.insertRow();
      row.append(make('th', '', key));
      const text = value.length > 4096 ? `${value.slice(0, 4096)}… (${grouped(value.length)} characters)` : value;
      row.append(make('td', 'n', text));
    }
    $('metadata-box').hidden = lines.length === 0;
    $('metadata-box').open = lines.length > 0 && lines.length <= 4;
    $('metadata-count').textContent = counted(lines.length, 'entry').replace('entrys', 'entries');
  }

  // ---- modules

  function tree() {
    const root = {name: 'all', path: '', bytes: 0, count: 0, children: new Map()};
    for (const {tensor} of model.rows) {
      let node = root;
      const parts = tensor.name.match(/(?:\\.|[^.\\])+/gs) ?? [tensor.name];
      const size = tensor.tied ? 0 : bytes(tensor);
      node.bytes += size;
      ++node.count;
      let path = '';
      for (const part of parts.slice(0, -1)) {
        path += (path ? '.' : '') + part;
        if (!node.children.has(part)) node.children.set(part, {name: part, path, bytes: 0, count: 0, children: new Map()});
        node = node.children.get(part);
        node.bytes += size;
        ++node.count;
      }
    }
    const pane = $('tree');
    pane.textContent = '';
    pane.classList.toggle('empty', root.children.size === 0);
    const limit = 300;
    function lines(node, level, into) {
      const children = Array.from(node.children.values());
      for (const child of children.slice(0, limit)) into.append(line(child, level));
      if (children.length > limit) into.append(make('p', 'dim', `and ${grouped(children.length - limit)} more: search by name`));
    }
    function line(node, level) {
      const item = make('div');
      const row = item.appendChild(make('div', 'module'));
      row.setAttribute('role', 'treeitem');
      row.tabIndex = 0;
      row.style.paddingLeft = `${level * .9}rem`;
      row.dataset.path = node.path;
      const inner = node.children.size > 0;
      const arrow = row.appendChild(make('button', 'arrow', inner ? '▸' : '·'));
      arrow.type = 'button';
      arrow.tabIndex = -1;
      arrow.setAttribute('aria-label', inner ? 'Open or close' : '');
      row.append(make('span', 'label', node.name), make('span', 'size', human(node.bytes)));
      const share = row.appendChild(make('i', 'share'));
      share.style.width = `${root.bytes === 0 ? 0 : 100 * node.bytes / root.bytes}%`;
      row.title = shown(`${node.path || 'all'}: ${counted(node.count, 'tensor')}, ${human(node.bytes)}`);
      let below = null;
      const toggle = (open = below === null) => {
        if (!inner || open === (below !== null)) return;
        if (open) {
          below = item.appendChild(make('div', 'below'));
          lines(node, level + 1, below);
        } else {
          below.remove();
          below = null;
        }
        arrow.textContent = open ? '▾' : '▸';
        row.setAttribute('aria-expanded', String(open));
      };
      if (inner) row.setAttribute('aria-expanded', 'false');
      const choose = () => {
        for (const chosen of pane.querySelectorAll('.chosen')) chosen.classList.remove('chosen');
        row.classList.add('chosen');
        prefix = node.path;
        toggle(true);
        filter();
      };
      arrow.addEventListener('click', (event) => { event.stopPropagation(); toggle(); });
      row.addEventListener('click', choose);
      row.addEventListener('keydown', (event) => {
        if (event.key === 'Enter') choose();
        if (event.key === 'ArrowRight') toggle(true);
        if (event.key === 'ArrowLeft') toggle(false);
      });
      if (node === root) { toggle(true); row.classList.add('chosen'); }
      return item;
    }
    pane.append(line(root, 0));
  }

  // ---- a tensor

  function select(row) {
    selected = row;
    for (const [i, element] of table.pool) element.classList.toggle('selected', filtered[i] === row);
    detail(row);
    if (!row.facts) facts_of([row]);
  }
  $('detail-close').addEventListener('click', () => {
    selected = null;
    $('detail').hidden = true;
    table.redraw();
  });
  addEventListener('keydown', (event) => { if (event.key === 'Escape' && !$('detail').hidden) $('detail-close').click(); });

  function detail(row) {
    const {tensor, facts} = row;
    const was_hidden = $('detail').hidden;
    $('detail').hidden = false;
    if (was_hidden) table.redraw();
    const body = $('detail-body');
    body.textContent = '';
    body.append(make('h3', 'n', tensor.name));
    const list = body.appendChild(make('dl'));
    const add = (key, value, className = '') => { if (value !== '' && value !== undefined && value !== null) list.append(make('dt', '', key), make('dd', className, value)); };
    add('dtype', dtype(tensor), 'm');
    add('shape', shape(tensor), 'm');
    add('elements', grouped(tensor.elements));
    add('bytes', `${grouped(bytes(tensor))} (${human(bytes(tensor))})`);
    if (tensor.tied) add('tied to', tensor.tied_to, 'n');
    if (tensor.offset !== undefined) add('offset', grouped(tensor.offset));
    if (tensor.file !== undefined && tensor.file !== model.name) add('file', tensor.file, 'n');
    add('encoding', tensor.encoding);
    if (tensor.composite) {
      const c = tensor.composite;
      add('quantized', `${c.bits} bits, groups of ${grouped(c.group)}, read as ${tensor.dtype}`);
      add('parts', c.parts.filter(Boolean).join('\n'), 'n');
    }
    for (const [key, value] of Object.entries(tensor.annotations ?? {})) add(key, typeof value === 'string' ? value : JSON.stringify(value), 'n');
    if (!facts) {
      body.append(make('p', 'dim', 'reading…'));
      return;
    }
    if (facts.damaged) {
      body.append(make('p', 'flag', facts.damaged));
      return;
    }
    add('checksum', tensor.checksum ? 'checked' : 'none', tensor.checksum ? 'ok' : 'dim');
    if (!facts.count) {
      body.append(make('p', 'dim', 'elements of this dtype are no numbers'));
      return;
    }
    if (facts.histogram) {
      const box = body.appendChild(make('div', 'large'));
      box.append(histogram(facts.histogram), make('span', 'dim', short(facts.statistics.min)), make('span', 'dim', short(facts.statistics.max)));
    }
    const numbers = body.appendChild(make('dl', 'numbers'));
    for (const key of ['min', 'max', 'mean', 'std', 'norm']) numbers.append(make('dt', '', key), make('dd', 'r', short(facts.statistics[key])));
    numbers.append(make('dt', '', 'zeros'), make('dd', 'r', `${grouped(facts.statistics.zeros)} (${short(100 * facts.statistics.zeros / facts.count, 3)}%)`));
    const flagged = flags(facts);
    if (flagged) numbers.append(make('dt', '', 'flags'), make('dd', 'r flag', flagged));
    if (row.values) body.append(make('p', 'dim', 'first elements'), make('p', 'values', row.values.join('  ')));
  }

  async function facts_of(rows) {
    const wanted = rows.filter((row) => !row.facts);
    if (wanted.length === 0) return;
    const total = wanted.reduce((sum, row) => sum + 2 * row.tensor.bytes, 0);
    const one = wanted.length === 1;
    await run(one ? `Read ${wanted[0].tensor.name}` : `Read ${counted(wanted.length, 'tensor')}`, total, async (progress, over) => {
      let drawn = performance.now();
      for (const row of wanted) {
        if (over()) return;
        row.facts = await ask('statistics', {key: a, tensor: row.index}, progress);
        progress.add(2 * row.tensor.bytes);
        if (one && row.facts.count) {
          const part = row.tensor.shape.at(-1) ?? 1;
          row.values = await ask('values', {key: a, tensor: row.index, elements: row.tensor.elements, bytes: row.tensor.bytes, count: Math.min(8, part, row.tensor.elements)}).catch((error) => {
            if (error.cancelled) throw error;
            return null;
          });
        }
        if (row === selected) detail(row);
        if (performance.now() - drawn > 250 || one) {
          drawn = performance.now();
          table.redraw();
        }
      }
    });
    if (order.column?.className?.includes('stat') || $('only').checked) filter(true); else table.redraw();
  }
  $('statistics').addEventListener('click', () => facts_of(filtered));
  $('hash').addEventListener('click', async () => {
    const digest = await run(`Hash ${model.name}`, model.description.total.bytes, (progress) => ask('hash', {key: a}, progress));
    if (digest !== undefined) $('digest').textContent = `XXH3 ${digest}`;
  });

  // ---- two models

  const cell = (title, key, className, text = (value) => shown(value ?? '')) => ({
    title, className, order: (row) => row[key] ?? -Infinity,
    fill(element, row) { element.textContent = text(row[key], row); element.title = element.textContent; },
  });
  const differences = new Rows($('differences'), [
    cell('name', 'name', 'n'), cell('difference', 'kind', 'kind'), cell('A', 'a', 'm'), cell('B', 'b', 'm'),
    cell('max |a-b|', 'max_abs', 'r', (value, row) => row.max_abs === undefined ? '' : value === null ? 'not finite' : short(value)),
    cell('rms', 'rms', 'r', (value) => short(value)),
    cell('changed', 'differing', 'r', (value, row) => value === undefined ? '' : `${short(100 * value / Math.max(1, row.count), 3)}%`),
  ], {
    sort(column) {
      const down = differences.order?.column === column ? !differences.order.down : true;
      differences.order = {column, down};
      differences.sorted(column, down);
      const sign = down ? -1 : 1;
      const key = column.order;
      differences.show([...other.differences.differences].sort((x, y) => key(x) < key(y) ? -sign : key(x) > key(y) ? sign : 0));
    },
    row(element, row) { if (row.kind !== 'values') element.children[1].classList.add('flag'); },
  });
  function show_differences() {
    const {name, differences: found} = other;
    $('diff').hidden = false;
    const text = found.equal ? `Equal to ${name}: ${counted(found.tensors, 'tensor')}, values and metadata.`
      : `A is ${model.name}, B is ${name}. ${grouped(found.equal_tensors)} of ${counted(found.tensors, 'common tensor')} are equal` +
        (found.other_differences ? `; ${counted(found.other_differences, 'other difference')}` : '') + '.';
    $('diff-sum').textContent = shown(text);
    $('diff-sum').className = found.equal ? 'ok' : '';
    $('differences').hidden = found.equal;
    differences.sorted(null, false);
    differences.show(found.differences);
    foot();
    document.documentElement.dataset.compared = String(Number(document.documentElement.dataset.compared ?? 0) + 1);
  }

  const linked = new URLSearchParams(location.hash.slice(1)).get('url');
  if (linked !== null) {
    $('url').value = linked;
    $('by-url').requestSubmit();
  }
})();
