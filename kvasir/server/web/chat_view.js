// How messages look. Deliberately knows no server: what a button means is the caller's business.
import {become, byId, h, isComposing, textOf} from './dom.js';
import {renderMarkdown} from './markdown.js';

export class ChatView {
  // actions: mayAnswer(), edit(message, text), retry(message), choose(message, step).
  constructor(conversation, actions) {
    this.conversation = conversation;
    this.actions = actions;
    this.list = byId('turns');
    this.scroller = byId('messages');
    this.items = new Map();  // by message
    this.stale = new Set();
    this.edited = new Set();  // messages that are fields
    this.drawMs = 0;          // what the last drawing took
    this.isBusy = false;
  }

  // Another path is shown, or buttons have changed. What is as it was stays, fields too.
  showAll() {
    const isAtEnd = this.isAtEnd();
    const path = this.conversation.path();
    byId('welcome').hidden = path.length > 0;
    const before = this.items;
    this.items = new Map(path.map((message) => [message, before.get(message) ?? itemOf(message)]));
    path.forEach((message, place) => {
      this.fill(message);
      const item = this.items.get(message);
      const at = this.list.children[place] ?? null;
      if (at !== item) this.list.insertBefore(item, at);
    });
    while (this.list.children.length > path.length) this.list.lastChild.remove();
    this.edited = new Set([...this.edited].filter((message) => this.items.has(message)));
    if (isAtEnd) this.scrollToEnd();
  }

  // One message has grown. Drawn at most once per frame, however fast tokens come, and a long one so
  // that most of the time is left to whoever makes the tokens.
  update(message) {
    if (this.stale.size === 0) {
      setTimeout(() => requestAnimationFrame(() => this.draw()), 4 * this.drawMs);
    }
    this.stale.add(message);
  }

  draw() {
    const begin = performance.now();
    const isAtEnd = this.isAtEnd();
    for (const message of this.stale) {
      if (this.items.has(message)) this.fill(message);
    }
    this.stale.clear();
    if (isAtEnd) this.scrollToEnd();
    this.drawMs = performance.now() - begin;
  }

  fill(message) {
    if (this.edited.has(message)) return;
    become(this.items.get(message), this.content(message),
      (element) => element.matches('.text, .reasoning, .reasoning > div'));
  }

  // Turns the message into a field with its text.
  edit(message) {
    const item = this.items.get(message);
    if (!item || this.isBusy || this.edited.has(message)) return;
    const field = h('textarea', {'aria-label': 'Edit the message', class: 'edit-field'});
    field.value = message.content;
    field.rows = Math.min(12, message.content.split('\n').length + 1);
    const leave = () => {
      this.edited.delete(message);
      this.fill(message);
      byId('prompt').focus();
    };
    const send = () => {
      const text = textOf(field);
      if (!text || !this.actions.mayAnswer()) return;
      this.edited.delete(message);
      this.actions.edit(message, text);
    };
    field.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && !isComposing(event)) leave();
      if (event.key === 'Enter' && !event.shiftKey && !isComposing(event)) {
        event.preventDefault();
        send();
      }
      event.stopPropagation();
    });
    this.edited.add(message);
    item.replaceChildren(field, h('div', {class: 'tools'},
      h('button', {type: 'button', class: 'primary send-edit', onclick: send}, 'Send as a branch'),
      h('button', {type: 'button', onclick: leave}, 'Cancel')));
    field.focus();
  }

  content(message) {
    const who = message.role === 'user' ? 'You' : 'Model';
    return [
      h('span', {class: 'unseen'}, `${who}:`),
      message.reasoning ? reasoningOf(message, this.items.get(message)) : null,
      h('div', {class: 'text'}, ...this.text(message)),
      message.error ? h('p', {class: 'error', role: 'alert'}, message.error) : null,
      this.footer(message),
    ].filter((part) => part !== null);
  }

  text(message) {
    if (message.role === 'user') return [message.content];
    if (message.content) return renderMarkdown(message.content);
    return message.isStreaming ? [h('p', {class: 'waiting'}, message.note || 'Reading …')] : [];
  }

  footer(message) {
    const footer = h('div', {class: 'tools'});
    const siblings = message.parent.children;
    if (siblings.length > 1) {
      const place = siblings.indexOf(message);
      const step = (by, label, sign) => h('button', {
        type: 'button', class: by < 0 ? 'previous' : 'next', 'aria-label': label,
        disabled: this.isBusy || place + by < 0 || place + by >= siblings.length,
        onclick: () => this.actions.choose(message, by),
      }, sign);
      footer.append(h('span', {class: 'branches'},
        step(-1, 'Branch before', '‹'),
        h('span', {role: 'img', 'aria-label': `Branch ${place + 1} of ${siblings.length}`},
          `${place + 1}/${siblings.length}`),
        step(1, 'Branch after', '›')));
    }
    if (!message.isStreaming) {
      footer.append(message.role === 'user'
        ? h('button', {type: 'button', class: 'edit', disabled: this.isBusy,
                       onclick: () => this.edit(message)}, 'Edit')
        : h('button', {type: 'button', class: 'retry', disabled: this.isBusy,
                       onclick: () => this.actions.retry(message)}, 'Another answer'));
    }
    if (message.stats) footer.append(...statsOf(message.stats));
    if (message.note && !message.isStreaming) {
      footer.append(h('span', {class: 'quiet'}, message.note));
    }
    return footer;
  }

  isAtEnd() {
    const {scrollTop, scrollHeight, clientHeight} = this.scroller;
    return scrollHeight - scrollTop - clientHeight < 60;
  }
  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}

function itemOf(message) {
  return h('li', {class: `turn ${message.role}`, 'data-id': message.id});
}

// Folded, and as open or closed as it was.
function reasoningOf(message, item) {
  const isOpen = item?.querySelector('details.reasoning')?.open ?? false;
  const isThinking = message.isStreaming && !message.content;
  return h('details', {class: 'reasoning', open: isOpen},
    h('summary', {}, isThinking ? 'Thinking …' : 'Reasoning'),
    h('div', {}, ...renderMarkdown(message.reasoning)));
}

function statsOf({cached, prompt, generated, perSecond}) {
  const share = prompt > 0 ? cached / prompt : 0;
  const bar = h('span', {class: 'share', 'aria-hidden': true}, h('span'));
  bar.firstChild.style.width = `${Math.round(share * 100)}%`;
  return [
    h('span', {class: 'stats cached', 'data-cached': cached, 'data-prompt': prompt,
               title: 'Tokens of the prompt that were found in the cache and not computed again'},
      bar, `${cached} of ${prompt} tokens cached`),
    h('span', {class: 'stats'}, `${generated} new` +
      (perSecond > 0 ? `, ${perSecond.toFixed(perSecond < 10 ? 1 : 0)} tokens/s` : '')),
  ];
}
