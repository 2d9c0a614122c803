// Markdown as models write it, turned into elements. Deliberately never HTML: every piece of text
// becomes a text node, and a link goes nowhere but to http, https or mailto.
import {h, say} from './dom.js';

// A list of elements for a whole text.
export function renderMarkdown(text) {
  return blocks(text.replace(/\r\n?/g, '\n').split('\n'));
}

// An answer is drawn anew for every frame, and models loop: no pattern may take much more than a pass
// over a line of thousands of the same character. So neighbours in a pattern have nothing in common,
// and what begins in many places ends within MAX_SPAN.
const FENCE = /^ {0,3}(?=(```+|~~~+))\1([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+)(.*)$/;
const TABLE_LINE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*(?:\|\s*)?$/;

// Deeper than anybody writes; bounds the recursion on hostile text.
const MAX_DEPTH = 16;
// Wider than anybody reads; every row has all of them.
const MAX_COLUMNS = 100;

function blocks(lines, depth = 0) {
  const out = [];
  let at = 0;
  const take = ([element, next]) => {
    out.push(element);
    at = next;
  };
  while (at < lines.length) {
    const line = lines[at];
    if (line.trim() === '') {
      ++at;
    } else if (depth >= MAX_DEPTH) {
      take(paragraph(lines, at));
    } else if (FENCE.test(line)) {
      take(codeBlock(lines, at));
    } else if (HEADING.test(line)) {
      const [, marks, title] = HEADING.exec(line);
      // The page has the first two levels.
      take([h(`h${Math.min(marks.length + 2, 6)}`, {}, ...inline(headingText(title))), at + 1]);
    } else if (RULE.test(line)) {
      take([h('hr'), at + 1]);
    } else if (QUOTE.test(line)) {
      take(quote(lines, at, depth));
    } else if (ITEM.test(line)) {
      take(list(lines, at, depth));
    } else if (beginsTable(lines, at)) {
      take(table(lines, at));
    } else {
      take(paragraph(lines, at));
    }
  }
  return out;
}

// Without the marks that may close it.
function headingText(title) {
  let end = title.trimEnd().length;
  while (title[end - 1] === '#') --end;
  return title.slice(0, end).trimEnd();
}

// What the button says: a page that did not come from this machine or by https has no clipboard.
async function copied(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return 'Copied';
  } catch {
    getSelection().selectAllChildren(element);
    return 'Selected: press Ctrl+C';
  }
}

function codeBlock(lines, at) {
  const [, fence, info] = FENCE.exec(lines[at]);
  const language = info.trim().split(/\s/)[0];
  const body = [];
  let next = at + 1;
  const isEnd = (line) =>
    line.trim().startsWith(fence) && line.trim().replaceAll(fence[0], '') === '';
  // As far in as the fence is, so is the code.
  const margin = new RegExp(`^ {0,${lines[at].search(/\S/)}}`);
  while (next < lines.length && !isEnd(lines[next])) body.push(lines[next++].replace(margin, ''));
  const code = h('code', {}, body.join('\n'));
  const copy = h('button', {type: 'button', class: 'copy', onclick: async (event) => {
    say(event.target, await copied(code));
  }}, 'Copy');
  const head = h('div', {class: 'code-head'}, h('span', {}, language || 'text'), copy);
  return [h('div', {class: 'code'}, head, h('pre', {tabindex: 0}, code)), next + 1];
}

function quote(lines, at, depth) {
  const body = [];
  let next = at;
  for (; next < lines.length && QUOTE.test(lines[next]); ++next) {
    body.push(QUOTE.exec(lines[next])[1]);
  }
  return [h('blockquote', {}, ...blocks(body, depth + 1)), next];
}

function list(lines, at, depth) {
  const [, indent, marker] = ITEM.exec(lines[at]);
  const isOrdered = /\d/.test(marker);
  const element = isOrdered ? h('ol', {start: parseInt(marker, 10)}) : h('ul');
  let next = at;
  while (next < lines.length) {
    const item = ITEM.exec(lines[next]);
    if (!item || item[1].length > indent.length + 1 || /\d/.test(item[2]) !== isOrdered) break;
    const inner = item[1].length + item[2].length + Math.min(item[3].length, 4);
    const body = [item[4]];
    // What is indented as far as the item's text belongs to it, across blank lines too.
    for (++next; next < lines.length;) {
      let filled = next;
      while (filled < lines.length && isBlank(lines[filled])) ++filled;
      const space = indentOf(lines[filled] ?? '');
      if (space < item[1].length + 2) break;
      for (; next < filled; ++next) body.push('');
      body.push(lines[next++].slice(Math.min(space, inner)));
    }
    let filled = next;
    while (filled < lines.length && isBlank(lines[filled])) ++filled;
    if (ITEM.test(lines[filled] ?? '')) next = filled;
    element.append(h('li', {}, ...itemContent(blocks(body, depth + 1))));
  }
  return [element, next];
}

const isBlank = (line) => line.trim() === '';
const indentOf = (line) => line.length - line.trimStart().length;

// A single paragraph in an item needs no element of its own.
function itemContent(elements) {
  if (elements[0]?.tagName !== 'P') return elements;
  return [...elements[0].childNodes, ...elements.slice(1)];
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((cell) =>
    cell.trim().replaceAll('\\|', '|'));
}

function beginsTable(lines, at) {
  return lines[at].includes('|') && TABLE_LINE.test(lines[at + 1] ?? '') &&
    cells(lines[at]).length <= MAX_COLUMNS;
}

function table(lines, at) {
  const columns = cells(lines[at]);
  const sides = cells(lines[at + 1]).map((cell) =>
    cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : 'left');
  const row = (tag, texts) => h('tr', {}, ...columns.map((_, i) =>
    h(tag, {class: `to-${sides[i] ?? 'left'}`}, ...inline(texts[i] ?? ''))));
  const body = h('tbody');
  let next = at + 2;
  for (; next < lines.length && lines[next].includes('|'); ++next) {
    body.append(row('td', cells(lines[next])));
  }
  const whole = h('table', {}, h('thead', {}, row('th', columns)), body);
  return [h('div', {class: 'table', tabindex: 0}, whole), next];
}

function paragraph(lines, at) {
  const body = [lines[at].trim()];
  let next = at + 1;
  const ends = [FENCE, HEADING, RULE, QUOTE, ITEM];
  while (next < lines.length && lines[next].trim() !== '' &&
         !ends.some((pattern) => pattern.test(lines[next])) && !beginsTable(lines, next)) {
    body.push(lines[next++].trim());
  }
  const element = h('p');
  body.forEach((line, i) => element.append(...(i > 0 ? [h('br')] : []), ...inline(line)));
  return [element, next];
}

const MAX_SPAN = 2000;
const WITHIN = `([^]{0,${MAX_SPAN}}?\\S)`;
// Of addresses, which may have pairs of parentheses: in parentheses themselves, and without any.
const ADDRESS = '(?:[^\\s()>]|\\([^\\s()>]{0,500}\\))';
const BARE = '[^\\s<>"\'()\\]';
const PAIR = `\\(${BARE}]{0,500}\\)`;

// Each finds its first match from a place on; the earliest wins, and of those at one place the
// first.
const SPANS = [
  {pattern: /\\([\\`*_{}[\]()#+\-.!|~<>])/g, make: (m) => document.createTextNode(m[1])},
  {pattern: new RegExp(`(?<!\`)(\`+)(?!\`)([^]{0,${MAX_SPAN}}?[^\`])\\1(?!\`)`, 'g'),
   make: (m) => h('code', {}, m[2])},
  {pattern: new RegExp(`\\*\\*\\*(?=[^\\s*])${WITHIN}\\*\\*\\*`, 'g'),
   make: (m, depth) => h('strong', {}, h('em', {}, ...inline(m[1], depth)))},
  {pattern: new RegExp(`\\*\\*(?=\\S)${WITHIN}\\*\\*(?!\\*)`, 'g'),
   make: (m, depth) => h('strong', {}, ...inline(m[1], depth))},
  {pattern: new RegExp(`(?<!\\w)__(?=\\S)${WITHIN}__(?!\\w)`, 'g'),
   make: (m, depth) => h('strong', {}, ...inline(m[1], depth))},
  {pattern: new RegExp(`~~(?=\\S)${WITHIN}~~`, 'g'),
   make: (m, depth) => h('s', {}, ...inline(m[1], depth))},
  {pattern: /\*(?![\s*])([^*]*[^\s*])\*(?!\*)/g,
   make: (m, depth) => h('em', {}, ...inline(m[1], depth))},
  {pattern: /(?<!\w)_(?![\s_])([^_]*[^\s_])_(?!\w)/g,
   make: (m, depth) => h('em', {}, ...inline(m[1], depth))},
  {pattern: new RegExp(`!?\\[([^\\]]{0,${MAX_SPAN}})\\]\\(\\s{0,9}<?(${ADDRESS}*)` +
                       `(?:[\\s>][^)]{0,${MAX_SPAN}})?\\)`, 'g'),
   make: (m, depth) => link(m[2], m[1], depth)},
  {pattern: new RegExp(`<?\\b(https?://(?:${BARE}]|${PAIR})*(?:${BARE}.,;:!?]|${PAIR}))>?`, 'g'),
   make: (m) => link(m[1], m[1], MAX_DEPTH)},
];

function inline(text, depth = 0) {
  const out = [];
  // The next match of each, looked for again only once the text before it is done.
  const next = depth < MAX_DEPTH ? SPANS.map((span) => ({span, match: {index: -1}})) : [];
  let at = 0;
  for (;;) {
    let best = null;
    for (const found of next) {
      if (found.match && found.match.index < at) {
        found.span.pattern.lastIndex = at;
        found.match = found.span.pattern.exec(text);
      }
      if (found.match && (best === null || found.match.index < best.match.index)) best = found;
    }
    const end = best ? best.match.index : text.length;
    if (end > at) out.push(document.createTextNode(text.slice(at, end)));
    if (best === null) return out;
    out.push(best.span.make(best.match, depth + 1));
    at = end + best.match[0].length;
  }
}

// Images are links too: the page loads nothing from elsewhere.
function link(address, text, depth) {
  const shown = inline(text || address, depth);
  let url;
  try {
    url = new URL(address);
  } catch {
    return h('span', {}, ...shown);
  }
  if (!['http:', 'https:', 'mailto:'].includes(url.protocol)) return h('span', {}, ...shown);
  return h('a', {href: url.href, target: '_blank', rel: 'noopener noreferrer'}, ...shown);
}
