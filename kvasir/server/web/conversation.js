// A conversation as a tree: every edit and every other answer is a branch, and one path is shown.
// Deliberately without a page and without a server.
import {tabStore} from './storage.js';

const STORE = 'kvasir.conversation';

export class Conversation {
  constructor() {
    this.root = {id: 0, parent: null, children: [], chosen: 0, role: 'root'};
    this.nextId = 1;
  }

  // A new message after `parent`, beside those that are there already; it is the one shown.
  add(parent, role, content) {
    const message = {
      id: this.nextId++, parent, children: [], chosen: 0, role, content,
      reasoning: '', error: '', note: '', stats: null, isStreaming: false,
    };
    parent.children.push(message);
    parent.chosen = parent.children.length - 1;
    return message;
  }

  // The messages shown, first to last.
  path() {
    const path = [];
    for (let at = this.root; at.children.length > 0;) {
      at = at.children[at.chosen];
      path.push(at);
    }
    return path;
  }

  last() {
    return this.path().at(-1) ?? this.root;
  }

  // Shows the sibling `step` places on, with what followed it.
  choose(message, step) {
    const {parent} = message;
    const place = parent.children.indexOf(message) + step;
    if (place >= 0 && place < parent.children.length) parent.chosen = place;
    return parent.children[parent.chosen];
  }

  // With all that followed it.
  remove(message) {
    const {parent} = message;
    const place = parent.children.indexOf(message);
    parent.children.splice(place, 1);
    if (place <= parent.chosen) parent.chosen = Math.max(0, parent.chosen - 1);
  }

  // For the API: what leads to `message`, itself included. Answers that failed or were stopped before
  // they began are empty there: many templates refuse two questions in a row.
  messagesUpTo(message) {
    const messages = [];
    for (let at = message; at.role !== 'root'; at = at.parent) {
      messages.unshift({role: at.role, content: at.content});
    }
    return messages;
  }

  // Kept for this tab, so that a reload loses nothing: where the browser has no room for all branches,
  // the one that is shown. False: not even that, and what was kept before stays.
  save() {
    const text = (isKept) => {
      const plain = (message) => {
        const children = message.children.filter(isKept);
        const chosen = Math.max(0, children.indexOf(message.children[message.chosen]));
        return {
          ...message, chosen, children: children.map(plain),
          parent: undefined, isStreaming: undefined, raw: undefined,
        };
      };
      return JSON.stringify({root: plain(this.root), nextId: this.nextId});
    };
    if (tabStore.set(STORE, text(() => true))) return true;
    const shown = new Set(this.path());
    return tabStore.set(STORE, text((message) => shown.has(message)));
  }

  static restored() {
    const conversation = new Conversation();
    try {
      const kept = JSON.parse(tabStore.get(STORE));
      if (!kept) return conversation;
      link(kept.root, null);
      conversation.root = kept.root;
      conversation.nextId = kept.nextId;
    } catch {
      tabStore.remove(STORE);
    }
    return conversation;
  }
}

// Throws where another version of the page kept something else.
function link(message, parent) {
  const isText = ['content', 'reasoning', 'error', 'note'].every(
    (field) => message.role === 'root' || typeof message[field] === 'string');
  if (!isText || !['root', 'user', 'assistant'].includes(message.role) ||
      (message.role === 'root') !== (parent === null) ||
      (message.children.length > 0 && !(message.chosen in message.children))) {
    throw new TypeError('no conversation');
  }
  message.parent = parent;
  message.isStreaming = false;
  message.children.forEach((child) => link(child, message));
}

// Splits what a model wrote into its reasoning and its answer, where it marks one with <think>.
export function splitReasoning(text) {
  const match = /^\s*<think>([\s\S]*?)(?:<\/think>\s*|$)/.exec(text);
  return match ? {reasoning: match[1].trim(), answer: text.slice(match[0].length)}
               : {reasoning: '', answer: text};
}
