// The live picture of the cache: budget, curves, and every sequence's blocks.
// Deliberately asks only while it is looked at, and never twice at once.
import {ApiError, getJson} from './api.js';
import {
  budgetParts, bytesText, layersText, rates, runText, sharingOf, sharingStep,
} from './cache_data.js';
import {Curve} from './curves.js';
import {byId, h} from './dom.js';

const PERIOD_MS = 1000;
// A picture may be this old when the server gives it: asked again sooner, it would be the same.
const SOON_MS = 220;
const MAX_BLOCK_PX = 14;

export class CacheView {
  constructor() {
    this.isWatched = false;
    this.isAsking = false;
    this.timer = 0;
    this.picture = null;
    this.speed = new Curve('Tokens per second', {
      format: (v) => v >= 100 ? Math.round(v) : v.toFixed(v >= 10 ? 0 : 1), className: 'speed'});
    this.hits = new Curve('Prompt tokens found', {
      format: (v) => `${Math.round(v * 100)} %`, most: 1, className: 'hits'});
    byId('curves').append(this.speed.element, this.hits.element);
    byId('colouring').addEventListener('change', () => this.draw());
    byId('blocks').addEventListener('pointerover', (event) => this.mark(event.target.dataset?.run));
    byId('blocks').addEventListener('pointerleave', () => this.mark(undefined));
    document.addEventListener('visibilitychange', () => this.watch(this.isWatched));
    new ResizeObserver(() => this.draw()).observe(byId('blocks'));
  }

  watch(isWatched) {
    this.isWatched = isWatched;
    this.schedule(0);
  }
  refreshSoon() {
    this.schedule(SOON_MS);
  }

  schedule(ms) {
    clearTimeout(this.timer);
    if (this.isWatched && !document.hidden) this.timer = setTimeout(() => this.ask(), ms);
  }

  async ask() {
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      this.show(await getJson('/cache'));
      byId('cache-state').textContent = '';
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      byId('cache-state').textContent = error.status === 401 ? 'needs the key' : 'no answer';
      // Asked again once there is a key.
      if (error.status === 401) return;
    } finally {
      this.isAsking = false;
    }
    this.schedule(PERIOD_MS);
  }

  show(picture) {
    const change = this.picture ? rates(this.picture, picture) : null;
    if (change) {
      this.speed.add(change.generatedPerSecond);
      this.hits.add(change.hitRate);
    }
    this.picture = picture;
    this.showBudget();
    this.draw();
  }

  showBudget() {
    const {bytes, requests} = this.picture;
    const texts = ['live', 'cached', 'free'].map((name) => `${bytesText(bytes[name])} ${name}`);
    const bar = h('div', {class: 'bar', role: 'img', 'aria-label': texts.join(', ')});
    for (const {name, share} of budgetParts(bytes)) {
      const part = h('span', {class: `part ${name}`});
      part.style.width = `${share * 100}%`;
      part.style.minWidth = share > 0 ? '3px' : '0';
      bar.append(part);
    }
    const entry = (name, value, title) => h('span', {class: `entry ${name}`, title},
      h('i', {'aria-hidden': true}), `${name} `, h('b', {}, bytesText(value)));
    const waiting = requests.waiting > 0 ? `, ${requests.waiting} waiting` : '';
    byId('budget').replaceChildren(
      h('div', {class: 'bar-head'}, h('span', {}, `${bytesText(bytes.budget)} budget`),
        h('span', {class: 'quiet'}, `${requests.running} answering${waiting}`)),
      bar,
      h('div', {class: 'entries'},
        entry('live', bytes.live, 'Blocks of answers being made'),
        entry('cached', bytes.cached, 'Blocks kept to be found again, as long as there is room'),
        entry('free', bytes.free, 'What is left of the budget'),
        entry('scratch', bytes.scratch, 'Activations of one step, outside the budget')));
  }

  colouring() {
    return byId('colouring').querySelector('input:checked').value;
  }

  draw() {
    const {picture} = this;
    if (!picture) return;
    const list = byId('blocks');
    list.className = `by-${this.colouring()}`;
    this.showLegend();
    const ends = picture.sequences.flatMap(({runs}) =>
      runs.flatMap((kind) => kind.map((run) => run.first_block + run.blocks)));
    const most = Math.max(8, ...ends);
    const pitch = Math.min(MAX_BLOCK_PX, Math.max(0.5, (list.clientWidth - 26) / most));
    list.style.setProperty('--pitch', `${pitch}px`);
    list.style.setProperty('--gap', pitch >= 5 ? '2px' : pitch >= 3 ? '1px' : '0px');
    const focused = document.activeElement?.dataset?.sequence;
    list.replaceChildren(...picture.sequences.map((sequence) => this.row(sequence)));
    if (focused) list.querySelector(`[data-sequence="${CSS.escape(focused)}"]`)?.focus();
    const {own, references} = sharingOf(picture);
    const notes = [];
    if (picture.sequences.length === 0) notes.push('Nothing is cached yet.');
    if (own > 0) {
      const lines = picture.kinds.map(({name, layers}) => `${layersText(layers)} (${name})`);
      notes.push(`A column is ${picture.block_tokens} positions; the lines of a sequence are ` +
                 `${lines.join(', ')}. ${own} blocks do the work of ${references}.`);
    }
    if (picture.left_out > 0) notes.push(`${picture.left_out} more sequences are not shown.`);
    byId('blocks-note').textContent = notes.join(' ');
  }

  row(sequence) {
    const {picture} = this;
    const isLive = sequence.state === 'live';
    const shared = sequence.bytes - sequence.exclusive_bytes;
    const text = `${isLive ? 'Answering' : 'Cached'}: ${sequence.tokens} tokens, ` +
      `${bytesText(sequence.bytes)}` + (shared > 0 ? `, ${bytesText(shared)} of it shared` : '');
    const lines = sequence.runs.map((runs, kind) => h('div', {class: 'line', title:
      `${picture.kinds[kind].name}, ${layersText(picture.kinds[kind].layers)}`},
      ...runs.map((run) => this.run(run, kind))));
    return h('li', {class: `sequence ${sequence.state}`, tabindex: 0, 'aria-label': text,
                    'data-sequence': sequence.id},
      h('span', {class: 'name'}, text), ...lines);
  }

  run(run, kind) {
    const element = h('span', {
      class: `run s${sharingStep(run.shared_by)} c${run.codec % 8} t-${run.tier}`,
      'data-run': `${kind}:${run.id}`, 'data-shared': run.shared_by, 'data-blocks': run.blocks,
      title: runText(run, this.picture),
    });
    element.style.setProperty('--first', run.first_block);
    element.style.setProperty('--blocks', run.blocks);
    return element;
  }

  // Shows where else the same blocks are.
  mark(run) {
    for (const element of byId('blocks').querySelectorAll('.run')) {
      element.classList.toggle('marked', run !== undefined && element.dataset.run === run);
    }
  }

  showLegend() {
    const entries = {
      sharing: [['s1', 'one sequence'], ['s2', 'two'], ['s3', 'three'], ['s4', 'more']],
      codec: this.picture.codecs.map((name, i) => [`c${i % 8}`, name]),
      tier: [['t-live', 'in use now'], ['t-cached', 'kept for reuse']],
    }[this.colouring()];
    byId('legend').className = `by-${this.colouring()}`;
    byId('legend').replaceChildren(...entries.map(([className, name]) =>
      h('span', {class: 'entry'}, h('i', {class: `run ${className}`, 'aria-hidden': true}), name)));
  }
}
